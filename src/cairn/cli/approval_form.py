"""Approving a call with other arguments: the form made of its tool's schema, and the decision."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cairn.cli import exits
from cairn.cli.changed import tell
from cairn.cli.place import Place, runtime_of, with_app, with_store
from cairn.cli.plain import visible_line
from cairn.cli.say import complain
from cairn.core.guard import canonical
from cairn.core.index import Pending, pending_of
from cairn.core.messages import Principal
from cairn.core.state import RunState
from cairn.core.visible import as_read, in_json
from cairn.engine.client import Client
from cairn.engine.given import check_request
from cairn.engine.load import load
from cairn.errors import ConfigError, UnknownRun

if TYPE_CHECKING:
    from cairn.runtime import Runtime

WIDTH = 96


def approve_changed(
    place: Place,
    request: str,
    who: Principal,
    message: str,
    digest: str,
    arguments: str,
    *,
    json: bool = False,
) -> int:
    """Approve one request with other arguments, from the option or from an editor.

    Args:
        arguments: JSON text; empty to open an editor.
        json: Whether what was done is said as JSON.
    """

    async def decide(runtime: Runtime) -> int:
        text = arguments, digest
        return await _decide(runtime, place, request, who, message, text, json=json)

    if place.has_app:
        return with_app(place, decide)

    async def alone(client: Client) -> int:
        return await decide(runtime_of(client))

    return with_store(place, alone)


def unchecked(note: str, place: Place) -> str:
    """Why new arguments were not checked, and how they would have been."""
    return note if place.has_app else f"{note}. To have them checked at once: --app module:name"


async def _decide(
    runtime: Runtime,
    place: Place,
    request: str,
    who: Principal,
    message: str,
    given: tuple[str, str],
    *,
    json: bool,
) -> int:
    text, digest = given
    if not text:
        state = await load(runtime.store, check_request(request)[0])
        item = _open_request(state, request)
        await runtime.host.reach(state.agent, [item.tool])
        edited = in_editor(form(item, schema_of(runtime, state, item)))
        if edited is None or canonical(answers(edited)) == canonical(item.detail):
            complain(f"nothing was changed, so nothing was decided: cairn approve {request}")
            return exits.REFUSED
        text, digest = answers(edited), digest or item.digest
    run = await runtime.approve_async(request, message, by=who, digest=digest, arguments=text)
    if run.note.startswith(request):
        tell(json, "approved", request, run.note, changed=False, run=run.id)
        return exits.DONE
    said = f"approved {request} with {visible_line(text, 200)}"
    tell(json, "approved", request, said, run=run.id)
    if run.note:
        complain(unchecked(run.note, place))
    return exits.DONE


def _open_request(state: RunState, request: str) -> Pending:
    for item in pending_of(state):
        if item.id == request and item.kind == "approval":
            return item
    raise UnknownRun(f"no request {request} waits for approval")


def in_editor(text: str) -> str | None:
    """The text as it comes back from the editor of the person; None when it was not saved.

    Raises:
        ConfigError: there is no such editor, or it failed.
    """
    named = next((name for name in ("VISUAL", "EDITOR") if os.environ.get(name)), "EDITOR")
    fix = "Set $EDITOR to an editor that is here, or pass --arguments JSON"
    command = shlex.split(os.environ.get(named, "vi"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "arguments.json")
        path.write_text(text, encoding="utf-8")
        os.utime(path, (0, 0))  # so that saving shows, however soon it is
        try:
            ended = subprocess.run([*command, str(path)], check=False).returncode
        except OSError as error:
            raise ConfigError(f"${named}", f"{command[0]}: {error.strerror}", fix) from error
        if ended:
            raise ConfigError(f"${named}", f"{command[0]} ended with {ended}", fix)
        return None if path.stat().st_mtime == 0 else path.read_text(encoding="utf-8")


def schema_of(runtime: Runtime, state: RunState, item: Pending) -> Mapping[str, Any]:
    """The JSON schema of the arguments, empty where the agent is not known."""
    if state.agent not in runtime.host.agents:
        return {}
    schemas = runtime.host.crew(state.agent).schemas
    return next((each.parameters for each in schemas if each.name == item.tool), {})


def form(item: Pending, schema: Mapping[str, Any]) -> str:
    """What is shown in the editor: the schema as comments, and the arguments as they stand."""
    lines = [f"# {item.id}: {item.tool}. Change the arguments, save, and close to approve them."]
    lines += [f"# {line}" for line in described(schema)]
    try:
        shown = msgspec.json.format(item.detail.encode(), indent=2).decode()
    except msgspec.DecodeError:
        shown = item.detail
    return "\n".join([*lines, in_json(as_read(shown)), ""])


def described(schema: Mapping[str, Any]) -> list[str]:
    """The properties of a schema, a line or more for each: name, type, default, description."""
    needed = set(schema.get("required", ()))
    lines: list[str] = []
    for name, about in schema.get("properties", {}).items():
        kind = _kind(about)
        default = f", default {_json(about['default'])}" if "default" in about else ""
        must = ", needed" if name in needed else ""
        text = f"{name}: {kind}{default}{must}. {about.get('description', '')}".strip()
        lines += textwrap.wrap(visible_line(text, 1_000), WIDTH, subsequent_indent="    ")
    return lines


def _kind(about: Mapping[str, Any]) -> str:
    if "enum" in about:
        return "one of " + ", ".join(_json(each) for each in about["enum"])
    if "anyOf" in about:
        return " or ".join(_kind(each) for each in about["anyOf"])
    kind = about.get("type", "any value")
    if kind == "array":
        return f"list of {_kind(about.get('items', {}))}"
    return kind if isinstance(kind, str) else " or ".join(kind)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def answers(text: str) -> str:
    """The JSON in what came back from the editor.

    Raises:
        ConfigError: it is no JSON object.
    """
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    try:
        value = msgspec.json.decode(kept)
    except msgspec.DecodeError as error:
        raise ConfigError("--edit", f"that is no JSON ({error})", "Try again") from None
    if not isinstance(value, dict):
        raise ConfigError("--edit", "that is no JSON object", "Try again")
    return _json(value)

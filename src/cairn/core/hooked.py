"""What the deployment's hooks leave in a journal, and what follows from it for a call."""

from __future__ import annotations

from collections.abc import Iterable

from cairn.core import events as ev
from cairn.core.state import Call
from cairn.core.terms import ApprovalTerms

PREFIX = "hook:"
"""How the rule begins that stands for a hook: `hook:` and its name."""
NOTE = (
    "[runtime] The hook {name} of this deployment changed the arguments of this call before it "
    "was started. What follows came of these: "
)


def rule_of(name: str) -> str:
    """The rule that stands for a hook."""
    return f"{PREFIX}{name}"


def hook_of(rule: str) -> str:
    """The name of the hook that a rule stands for; empty for any other rule."""
    return rule.removeprefix(PREFIX) if rule.startswith(PREFIX) else ""


def still_asked(call: Call) -> ApprovalTerms | None:
    """On which terms a person must be asked all the same, since a hook changed the call.

    A hook never grants: what had to be asked about before it changed the arguments still has to
    be. None when nothing had to.
    """
    return call.terms if hook_of(call.editor) else None


def told_of_change(call: Call, text: str) -> str:
    """What the model reads of a call: of one that a hook has changed also that, and what ran."""
    name = hook_of(call.editor)
    return f"{NOTE.format(name=name)}{call.arguments}\n\n{text}" if name else text


def seen_by_hooks(entries: Iterable[ev.Entry], call: str) -> bool:
    """Whether the hooks of today have let a call pass as it stands after these entries.

    It was asked about, changed by a hook, or started; and nothing was changed since, neither of
    the call nor of the hooks.
    """
    seen = False
    requests: set[int] = set()
    for entry in entries:
        match entry.event:
            case ev.ToolEdited(call=changed, rule=rule) if changed == call:
                seen = bool(hook_of(rule))
            case ev.ApprovalRequested(n=n, call=asked) if asked == call:
                seen = True
                requests.add(n)
            case ev.ApprovalGranted(n=n, arguments=arguments) if arguments and n in requests:
                seen = False
            case ev.ToolStarted(call=started) if started == call:
                seen = True
            case ev.ToolRedirected(call=sent) if sent == call:
                seen = False
            case ev.ToolFailed(call=failed, disposition="switch") if failed == call:
                seen = False
            case ev.RunVersionChanged(changes=changes):
                seen = seen and all(change.part != "hooks" for change in changes)
            case _:
                pass
    return seen

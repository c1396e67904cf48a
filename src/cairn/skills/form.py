"""The front matter of a `SKILL.md`, read by the Agent Skills form; every fault with its line."""

from __future__ import annotations

import re

from cairn.core.messages import Record, clean
from cairn.governance.nodes import Fault, Node, Reader
from cairn.workspace.paths import shown

FILE = "SKILL.md"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
COMPATIBILITY_CHARS = 500
FRONT_BYTES = 64 * 1024
MOST_METADATA = 64
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


class FrontMatter(Record):
    """What stands above the body of a `SKILL.md`.

    Args:
        name: As the folder is called.
        description: What it is for, and when to use it; one line.
        license: Name of its license, or of the file that holds it.
        compatibility: What it needs around it, in words.
        metadata: Whatever else its author noted.
        allowed_tools: Tools it says it uses. Shown, and never gone by: it permits nothing.
        unknown: Fields that the form does not have.
        body: Offset of the body in the text.
    """

    name: str
    description: str
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    body: int = 0

    @property
    def version(self) -> str:
        """`version` of its metadata; empty when it names none."""
        return self.metadata.get("version", "")


def body_of(text: str) -> int:
    """Where the body begins; 0 when there is no front matter."""
    block = _block(text)
    return block[1] if block is not None else 0


def _block(text: str) -> tuple[str, int] | None:
    """The YAML between the two lines of dashes, behind an empty line, and where the body begins."""
    first, _, _ = text.partition("\n")
    if first.rstrip() != "---":
        return None
    at = len(first) + 1
    while at < len(text):
        end = text.find("\n", at)
        line = text[at:] if end < 0 else text[at:end]
        following = len(text) if end < 0 else end + 1
        if line.rstrip() == "---":
            return "\n" + text[len(first) + 1 : at], following
        at = following
    return None


def read_front_matter(text: str, folder: str) -> tuple[FrontMatter | None, tuple[Fault, ...]]:
    """The front matter of a text, and all that is wrong with it.

    Args:
        text: The whole of a `SKILL.md`.
        folder: Name of the folder it lies in; the skill must be called so.

    Raises:
        ImportError: PyYAML is not installed.
    """
    block = _block(text)
    if block is None:
        said = "there is no front matter"
        fix = "Begin with a line ---, then name and description, then a line ---"
        if text.partition("\n")[0].rstrip() == "---":
            said = "the front matter has no end"
            fix = "Write a line --- behind its last field"
        return None, (Fault(line=1, field="", problem=said, fix=fix),)
    yaml, body = block
    if not yaml.strip() or len(yaml.encode("utf-8", "replace")) > FRONT_BYTES:
        large = bool(yaml.strip())
        said = "the front matter is too large" if large else "the front matter is empty"
        fix = f"{FRONT_BYTES:,} bytes at most" if large else "Write name and description"
        return None, (Fault(line=1, field="", problem=said, fix=fix),)
    reader = Reader(yaml)
    root = reader.root()
    found = _fields(root, folder, body) if root is not None else None
    return found, tuple(sorted(reader.faults, key=lambda fault: fault.line))


def _fields(root: Node, folder: str, body: int) -> FrontMatter:
    given = root.mapping()
    for needed in ("name", "description"):
        if needed not in given and root.kind == "a mapping":
            root.fault("it is missing", f"Write {needed}: …", field=needed)
    metadata = given["metadata"].mapping() if "metadata" in given else {}
    if len(metadata) > MOST_METADATA:
        given["metadata"].fault("it is too long", f"{MOST_METADATA} entries at most")
    return FrontMatter(
        name=_name(given["name"], folder) if "name" in given else "",
        description=_line(given, "description", DESCRIPTION_CHARS),
        license=_line(given, "license", DESCRIPTION_CHARS),
        compatibility=_line(given, "compatibility", COMPATIBILITY_CHARS),
        metadata={key: _scalar(node) for key, node in metadata.items()},
        allowed_tools=_tools(given["allowed-tools"]) if "allowed-tools" in given else (),
        unknown=tuple(sorted(shown(key, 64) for key in given if key not in FIELDS)),
        body=body,
    )


def _name(node: Node, folder: str) -> str:
    name = node.text()
    if not name:
        return ""
    if len(name) > NAME_CHARS or not NAME.fullmatch(name):
        fix = f"Use a-z, 0-9 and single hyphens between them, {NAME_CHARS} at most"
        node.fault(f"{shown(name, 80)} is no name", fix)
    elif name != folder:
        said = f"the folder is called {shown(folder, 80)}, not {name}"
        node.fault(said, "Call both the same")
    return name


def _line(given: dict[str, Node], field: str, most: int) -> str:
    """A text on one line, of so many characters at most; empty when there is none."""
    node = given.get(field)
    if node is None:
        return ""
    text = node.text()
    if len(text) > most:
        node.fault(f"it has {len(text):,} characters", f"Use {most:,} at most")
    return " ".join(clean(text).split())


def _scalar(node: Node) -> str:
    """A value of the metadata as it is written: 1.10 stays 1.10."""
    if node.kind not in {"text", "a number", "true or false", "nothing"}:
        node.fault(f"it is {node.kind}", "Write a single value")
        return ""
    return clean(str(node.yaml.value))[:DESCRIPTION_CHARS]


def _tools(node: Node) -> tuple[str, ...]:
    names = node.texts()
    return names if node.kind == "a list" else tuple(names[0].split())

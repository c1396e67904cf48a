"""YAML read node by node, so that every fault is said with its line, and none hides another.

Only the plain part of YAML is taken: no aliases, no tags, one document, bounded in size and depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cairn.core.messages import Record
from cairn.core.names import listed, nearest

MOST_BYTES = 262_144
MOST_DEPTH = 24
MOST_NODES = 20_000
MOST_FAULTS = 100
TAG = "tag:yaml.org,2002:"
ODD_NUMBER = re.compile(r"[-+]?0[0-9A-Za-z]|.*[:_]")
"""Numbers that YAML reads in another base, or as minutes or thousands."""
YES = frozenset({"yes", "on", "y"})
"""Words that YAML reads as true beside that word."""
PLAIN = {
    f"{TAG}str": "text",
    f"{TAG}int": "a number",
    f"{TAG}float": "a number",
    f"{TAG}bool": "true or false",
    f"{TAG}null": "nothing",
    f"{TAG}map": "a mapping",
    f"{TAG}seq": "a list",
}


class Fault(Record):
    """One thing that is wrong in a file."""

    line: int
    field: str
    problem: str
    fix: str

    def said(self, path: str) -> str:
        """As `file:line: field: problem: fix`."""
        return f"{path}:{self.line}: {self.field or 'file'}: {self.problem}: {self.fix}"


class Node:
    """A place in the file: its value, its line and its name."""

    __slots__ = ("field", "line", "reader", "yaml")

    def __init__(self, reader: Reader, yaml: Any, field: str) -> None:
        self.reader = reader
        self.yaml = yaml
        self.field = field
        self.line: int = yaml.start_mark.line + 1

    @property
    def kind(self) -> str:
        """What stands there, in words."""
        return PLAIN.get(self.yaml.tag, "a value of another kind")

    def fault(self, problem: str, fix: str, field: str = "") -> None:
        """Say that something is wrong here."""
        self.reader.say(self.line, field or self.field, problem, fix)

    def inside(self, key: str, yaml: Any) -> Node:
        """The node below, under this key."""
        return Node(self.reader, yaml, f"{self.field}.{key}" if self.field else key)

    def mapping(
        self, known: tuple[str, ...] | None = None, hints: Mapping[str, str] | None = None
    ) -> dict[str, Node]:
        """The values by their keys; keys beside `known` are faults, and so are doubled ones.

        `hints` say what to write in place of some of the keys that are none here.
        """
        if self.yaml.tag != f"{TAG}map":
            fix = f"Write a mapping of {listed(known)}" if known else "Write a mapping"
            self.fault(f"it is {self.kind}", fix)
            return {}
        found: dict[str, Node] = {}
        for key, value in self.yaml.value:
            line = key.start_mark.line + 1
            if key.tag != f"{TAG}str":
                said = f"the key {getattr(key, 'value', '')!r} is no text"
                self.reader.say(line, self.field, said, "Put it into quotes")
                continue
            node = self.inside(key.value, value)
            if key.value in found:
                said = f"it stands twice, first in line {found[key.value].line}"
                self.reader.say(line, node.field, said, "Keep one of them")
            elif known is not None and key.value not in known:
                close = nearest(key.value, known)
                meant = f"Did you mean {close[0]}?" if close else f"Known are {listed(known)}"
                meant = (hints or {}).get(key.value, meant)
                self.reader.say(line, node.field, "there is no such field", meant)
            else:
                found[key.value] = node
        return found

    def key_lines(self) -> dict[str, int]:
        """The line of each key of a mapping, by the key's name."""
        pairs = self.yaml.value if self.yaml.tag == f"{TAG}map" else []
        texts = [key for key, _ in pairs if key.tag == f"{TAG}str"]
        return {self.inside(key.value, key).field: key.start_mark.line + 1 for key in texts}

    def items(self) -> list[Node]:
        """The items of a list."""
        if self.yaml.tag != f"{TAG}seq":
            self.fault(f"it is {self.kind}", "Write a list, each item behind a dash")
            return []
        return [
            Node(self.reader, item, f"{self.field}[{n}]")
            for n, item in enumerate(self.yaml.value, 1)
        ]

    def text(self) -> str:
        """A text, empty after a fault."""
        if self.yaml.tag == f"{TAG}str" and self.yaml.value.strip():
            return str(self.yaml.value)
        empty = self.yaml.tag == f"{TAG}str"
        fix = "Write something" if empty or self.kind == "nothing" else "Put it into quotes"
        self.fault("it is empty" if empty else f"it is {self.kind}, not text", fix)
        return ""

    def texts(self) -> tuple[str, ...]:
        """A text, or a list of them."""
        if self.yaml.tag != f"{TAG}seq":
            return (self.text(),)
        if not self.yaml.value:
            self.fault("the list is empty", "Name at least one, or leave the field out")
        return tuple(item.text() for item in self.items())

    def scalar(self) -> Any:
        """A text, number, truth value or null."""
        if self.kind not in {"text", "a number", "true or false", "nothing"}:
            self.fault(f"it is {self.kind}", "Write a single value; put text into quotes")
            return None
        return self.plain()

    def number(self) -> Any:
        """A number, 0 after a fault."""
        if self.kind != "a number":
            self.fault(f"it is {self.kind}, not a number", "Write a number without quotes")
            return 0
        value = self.plain()
        return 0 if value is None else value

    def whole(self) -> int:
        """A whole number, 0 after a fault."""
        value = self.number()
        if isinstance(value, float):
            self.fault("it is no whole number", "Write it without a fraction")
            return 0
        return int(value)

    def truth(self) -> bool:
        """True or false."""
        if self.kind != "true or false":
            self.fault(f"it is {self.kind}", "Write true or false, without quotes")
            return False
        written = self.yaml.value.lower()
        if written not in {"true", "false"}:
            meant = "true" if written in YES else "false"
            self.fault(f"{self.yaml.value} is not taken for {meant} here", f"Write {meant}")
        return written == "true" or written in YES

    def plain(self) -> Any:
        """Whatever stands there, as plain data."""
        match self.kind:
            case "a mapping":
                return {key: node.plain() for key, node in self.mapping().items()}
            case "a list":
                return [item.plain() for item in self.items()]
            case "a value of another kind":
                self.fault("it is a value of another kind", "Put it into quotes")
                return None
        return self.reader.built(self)


class Reader:
    """Reads one file, and keeps what is wrong in it."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self.text = text
        self._builder: Any = None

    def say(self, line: int, field: str, problem: str, fix: str) -> None:
        """Keep a fault; after a hundred of them no more."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(Fault(line=line, field=field, problem=problem, fix=fix))

    def built(self, node: Node) -> Any:
        """The value of a scalar; what is written so that it reads as something else is a fault."""
        written = node.yaml.value
        if node.kind == "true or false" and written.lower() not in {"true", "false"}:
            meant = "true" if written.lower() in YES else "false"
            fix = f"Write {meant}, or put it into quotes where a text is meant"
            node.fault(f"{written} reads as {meant}", fix)
        elif node.kind == "a number" and ODD_NUMBER.match(written):
            fix = "Put it into quotes, or write it plainly"
            node.fault(f"{written} reads as another number", fix)
        try:
            return self._builder.construct_object(node.yaml)
        except (ValueError, OverflowError) as error:
            node.fault(f"it cannot be read ({error})", "Put it into quotes")
            return None

    def root(self) -> Node | None:
        """The one document; None when the file is none, which is a fault."""
        import yaml

        if len(self.text.encode("utf-8", "replace")) > MOST_BYTES:
            fix = f"At most {MOST_BYTES:,} bytes; split it"
            self.say(1, "", "the file is too large", fix)
            return None
        try:
            if not self._is_plain(yaml.parse(self.text, Loader=yaml.SafeLoader)):
                return None
            self._builder = yaml.SafeLoader(self.text)
            found = self._builder.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = (error.problem or "it is no YAML").strip()
            fix = "Mend the form of this line"
            if said.startswith("mapping values are not allowed"):
                said, fix = "a text with ': ' in it stands without quotes", "Put it into quotes"
            self.say(mark.line + 1 if mark else 1, "", said, fix)
            return None
        except (yaml.YAMLError, RecursionError) as error:
            said = " ".join(str(error).split())[:200]
            self.say(1, "", f"it is no YAML: {said}", "Mend it")
            return None
        if found is None:
            self.say(1, "", "the file is empty", "Write at least tools, effects or rules")
            return None
        return Node(self, found, "")

    def _is_plain(self, events: Iterator[Any]) -> bool:
        """Whether the file is bounded and holds nothing that stands for something else."""
        import yaml

        depth = nodes = documents = 0
        for event in events:
            line = event.start_mark.line + 1
            nodes += 1
            documents += isinstance(event, yaml.DocumentStartEvent)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                said, fix = "anchors and aliases are not taken", "Write it out"
            elif getattr(event, "tag", None) not in {None, "!"}:
                said, fix = f"the tag {event.tag!r} is not taken", "Leave it out"
            elif depth > MOST_DEPTH or nodes > MOST_NODES:
                said, fix = "it is nested too deeply, or too long", "Split it"
            elif documents > 1:
                said, fix = "a second document begins", "Keep one document in a file"
            else:
                continue
            self.say(line, "", said, fix)
            return False
        return True

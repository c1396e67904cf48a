"""Reading unified diffs, as `diff -u` and `git diff` write them. Nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from cairn.workspace.paths import shown
from cairn.workspace.refusals import PatchRefused

HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
NOWHERE = "/dev/null"
MOST_FILES = 100
PLAIN_MODES = {"100644": False, "100755": True}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
QUOTED = re.compile(r'\\([0-7]{3}|[ntr"\\])')
IGNORED = ("index ", "similarity index ", "dissimilarity index ")
SHOWN = 80


@dataclass(slots=True)
class Line:
    """One line of a hunk: ` ` stays, `-` goes, `+` comes."""

    mark: str
    body: str
    no_newline: bool = False


@dataclass(slots=True)
class Hunk:
    """Lines that follow each other, and where they stood."""

    at: int
    """The number of the first old line; for none, of the line before."""
    number: int
    lines: list[Line] = field(default_factory=list)

    @property
    def old(self) -> list[Line]:
        """The lines that must be there."""
        return [line for line in self.lines if line.mark != "+"]


@dataclass(slots=True)
class FilePatch:
    """What a diff says of one file.

    Attributes:
        old: Its path before; None for a new file.
        new: Its path after; None for one that is deleted.
        hunks: What changes in it.
        executable: Whether it is to be so afterwards; None if nothing is said.
    """

    old: str | None = None
    new: str | None = None
    hunks: list[Hunk] = field(default_factory=list)
    executable: bool | None = None

    @property
    def told(self) -> str:
        """Its path, to show."""
        return shown(self.new or self.old or "?")


class _Reader:
    """A diff's lines, one after the other."""

    def __init__(self, diff: str) -> None:
        lines = diff.split("\n")
        headed = [line for line in lines if line.startswith(("--- ", "+++ ", "@@ "))]
        if headed and all(line.endswith("\r") for line in headed):  # its carrier made it CRLF
            lines = [line.removesuffix("\r") for line in lines]
        if not lines[-1]:
            lines.pop()
        self.lines = lines
        self.at = 0

    def peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]

    def refuse(self, said: str) -> PatchRefused:
        line = self.lines[self.at - 1] if self.at else ""
        return PatchRefused(f"the diff's line {self.at}, {shown(line, SHOWN)!r}: {said}")


def parse(diff: str) -> list[FilePatch]:
    """What a diff says, file by file.

    Raises:
        PatchRefused: it is no unified diff, or says what is not done here (binary changes, links,
            copies).
    """
    reader = _Reader(diff)
    files = list(_files(reader))
    if not files:
        fix = "Write it with --- and +++ before each file and @@ -line,count +line,count @@"
        raise PatchRefused(f"this is no unified diff. {fix}")
    if len(files) > MOST_FILES:
        raise PatchRefused(
            f"{len(files)} files are too many for one diff; {MOST_FILES} are allowed"
        )
    return files


def _files(reader: _Reader) -> Iterator[FilePatch]:
    while (line := reader.peek()) is not None:
        if not line.strip():
            reader.take()
        elif line.startswith("diff --git "):
            yield _git_file(reader)
        elif line.startswith("--- "):
            patch = FilePatch()
            _names(reader, patch, git=False)
            yield patch
        else:
            reader.take()
            raise reader.refuse("a file begins with --- and +++, or with diff --git")


def _git_file(reader: _Reader) -> FilePatch:
    named = _both_names(reader.take().removeprefix("diff --git "))
    patch = FilePatch()
    said: dict[str, str] = {}
    while (line := reader.peek()) is not None:
        if line.startswith("--- "):
            if _is_of(reader, said, named):
                _names(reader, patch, git=True)
            break
        if line.startswith("diff --git ") or not line.strip():
            break
        reader.take()
        _extended(reader, line, said)
    if "executable" in said:
        patch.executable = bool(said["executable"])
    if patch.old is None and patch.new is None:  # no hunks: the header lines say it all
        if not named and "from" not in said:
            raise reader.refuse("it is not clear which file is meant")
        patch.old = None if "new" in said else said.get("from", named)
        patch.new = None if "deleted" in said else said.get("to", named)
        if not said:
            raise reader.refuse(f"nothing is said of {shown(named)}")
    if "from" in said and (patch.old, patch.new) != (said["from"], said.get("to")):
        raise reader.refuse("the names of the renaming and of --- and +++ differ")
    if "from" not in said:
        _refuse_renaming(reader, patch)
    return patch


def _is_of(reader: _Reader, said: dict[str, str], named: str) -> bool:
    """Whether the --- that follows belongs to this file, and not to the next."""
    at = reader.at
    old, new = _pair(reader)
    reader.at = at
    if not named and "from" not in said:
        return True
    return old in {None, said.get("from", named)} and new in {None, said.get("to", named)}


def _extended(reader: _Reader, line: str, said: dict[str, str]) -> None:
    word, _, rest = line.partition(" mode ")
    if word in {"new file", "deleted file", "old", "new"} and rest:
        if rest.strip() not in PLAIN_MODES:
            raise reader.refuse("only plain files are patched: modes 100644 and 100755")
        if word in {"new file", "deleted file"}:
            said[word.split()[0]] = "yes"
        if word in {"new file", "new"}:
            said["executable"] = "yes" if PLAIN_MODES[rest.strip()] else ""
        elif word == "old":
            said["old mode"] = rest
    elif line.startswith("rename from "):
        said["from"] = _unquoted(reader, line.removeprefix("rename from "))
    elif line.startswith("rename to "):
        said["to"] = _unquoted(reader, line.removeprefix("rename to "))
    elif line.startswith(("GIT binary patch", "Binary files ")):
        raise reader.refuse("binary changes are not done by a diff; use write_file")
    elif not line.startswith(IGNORED):
        raise reader.refuse("this kind of line is not known here")


def _pair(reader: _Reader) -> tuple[str | None, str | None]:
    """The names behind --- and +++, without the prefixes that git writes."""
    old = _name(reader, reader.take().removeprefix("--- "))
    if not (reader.peek() or "").startswith("+++ "):
        raise reader.refuse("a line that begins with +++ must follow")
    new = _name(reader, reader.take().removeprefix("+++ "))
    if old is None and new is None:
        raise reader.refuse("one of the two names must be a file")
    prefixed = (old is None or old.startswith("a/")) and (new is None or new.startswith("b/"))
    if prefixed:
        old, new = (name[2:] if name is not None else None for name in (old, new))
    return old, new


def _names(reader: _Reader, patch: FilePatch, *, git: bool) -> None:
    patch.old, patch.new = _pair(reader)
    if not git:
        _refuse_renaming(reader, patch)
    while (reader.peek() or "").startswith("@@"):
        patch.hunks.append(_hunk(reader, len(patch.hunks) + 1))
    if not patch.hunks and not git:
        raise reader.refuse("no hunk follows; one begins with @@ -line,count +line,count @@")


def _refuse_renaming(reader: _Reader, patch: FilePatch) -> None:
    if patch.old is not None and patch.new is not None and patch.old != patch.new:
        fix = "a renaming needs diff --git, rename from and rename to"
        raise reader.refuse(f"the two names differ; {fix}")


def _name(reader: _Reader, given: str) -> str | None:
    name = _unquoted(reader, given if given.startswith('"') else given.partition("\t")[0])
    return None if name == NOWHERE else name


def _unquoted(reader: _Reader, given: str) -> str:
    """A name as git writes it: in quotes with escapes, when it has other than plain letters."""
    if not given.startswith('"'):
        return given
    end = given.rfind('"')
    if end == 0:
        raise reader.refuse("the quotes are not closed")
    raw = bytearray()
    at = 0
    inner = given[1:end]
    for escape in QUOTED.finditer(inner):
        raw += inner[at : escape.start()].encode("utf-8", "surrogatepass")
        code = escape[1]
        raw += bytes([int(code, 8) & 255]) if code.isdigit() else ESCAPES[code].encode()
        at = escape.end()
    raw += inner[at:].encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "surrogateescape")


def _both_names(given: str) -> str:
    """The name in `a/name b/name`; empty unless both are the same."""
    half = len(given) // 2
    first, second = given[:half], given[half + 1 :]
    same = first.startswith("a/") and second.startswith("b/") and first[2:] == second[2:]
    return first[2:] if same and given[half : half + 1] == " " else ""


def _hunk(reader: _Reader, number: int) -> Hunk:
    head = HUNK.match(reader.take())
    if head is None:
        raise reader.refuse("a hunk begins with @@ -line,count +line,count @@")
    old_left, new_left = (int(count) if count is not None else 1 for count in head.group(2, 4))
    hunk = Hunk(at=int(head[1]), number=number)
    while old_left > 0 or new_left > 0:
        line = reader.peek()
        mark = (line or " ")[0] if line is not None else ""
        if mark not in {" ", "-", "+"} or line is None:
            if line is not None and line.startswith("\\") and hunk.lines:
                reader.take()
                hunk.lines[-1].no_newline = True
                continue
            missing = f"{old_left} old and {new_left} new lines"
            raise reader.refuse(f"hunk {number} ends too soon: by its head {missing} must follow")
        reader.take()
        old_left -= mark != "+"
        new_left -= mark != "-"
        if old_left < 0 or new_left < 0:
            raise reader.refuse(f"hunk {number} has other lines than its head counts")
        hunk.lines.append(Line(mark, line[1:].removesuffix("\r")))
    if (reader.peek() or "").startswith("\\") and hunk.lines:
        reader.take()
        hunk.lines[-1].no_newline = True
    following = reader.peek()
    if following is not None and following[:1] in {" ", "+"} and not following.startswith("+++ "):
        reader.take()
        raise reader.refuse(f"hunk {number} has more lines than its head counts")
    return hunk

"""One simple command as its words, or nothing if a shell might do anything else with the text."""

from __future__ import annotations

import re
import unicodedata

from cairn.core.messages import Record

COMMAND_CHARS = 8_192
MOST_WORDS = 256
ALWAYS = frozenset(";&|<>()$`*?[]{}!\\")
"""Signs that mean something to a shell wherever they stand outside quotes."""
IN_DOUBLE = frozenset("$`\\!")
KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"}
    | {"select", "function", "time", "coproc", "in"}
)
CARRIERS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "toybox", "env", "sudo", "doas", "su"}
    | {"runuser", "setpriv", "nice", "ionice", "nohup", "setsid", "timeout", "stdbuf", "xargs"}
    | {"parallel", "watch", "script", "unshare", "nsenter", "chroot", "flock", "strace", "ssh"}
    | {"eval", "exec", "command", "builtin", "source", "."}
)
"""Programs that are there to run others: which one, a rule about programs cannot tell."""
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=")


class Argv(Record):
    """A command taken apart.

    Args:
        program: The first word, as it was written.
        flags: Words that begin with `-`, up to `--`.
        words: All other words.
        first: The word right after the program, empty for none.
        values: What stands behind `=` in long options.
    """

    program: str
    flags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    first: str = ""
    values: tuple[str, ...] = ()


def taken_apart(given: object) -> Argv | None:
    """The command that a shell text, or a list of words, stands for; None when it is not one."""
    if isinstance(given, str):
        words = split(given)
    elif isinstance(given, list | tuple) and all(isinstance(word, str) for word in given):
        words = [*given]
    else:
        return None
    if not words or len(words) > MOST_WORDS or sum(map(len, words)) > COMMAND_CHARS:
        return None
    program, *rest = words
    if not program or program != program.strip() or "=" in program or program.startswith("-"):
        return None
    if any("\0" in word for word in words):
        return None
    end = rest.index("--") if "--" in rest else len(rest)
    flags = tuple(w for w in rest[:end] if w.startswith("-") and w != "-")
    plain = tuple(w for w in rest[:end] if not w.startswith("-") or w == "-")
    return Argv(
        program=program,
        flags=flags,
        words=(*plain, *rest[end + 1 :]),
        first=rest[0] if rest else "",
        values=tuple(w.partition("=")[2] for w in flags if "=" in w),
    )


def split(text: str) -> list[str] | None:
    """The words of a shell text, if it is exactly one simple command and nothing is expanded."""
    if len(text) > COMMAND_CHARS or any(map(_is_odd, text)):
        return None
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(text):
        char = text[at]
        if char == " ":
            if word is not None:
                words.append(word)
            word = None
        elif char in "'\"":
            end = text.find(char, at + 1)
            inside = text[at + 1 : end]
            if end < 0 or (char == '"' and not IN_DOUBLE.isdisjoint(inside)):
                return None
            word, at = (word or "") + inside, end
        elif char in ALWAYS or (char == "#" and word is None) or _is_home(char, word):
            return None
        else:
            word = (word or "") + char
        at += 1
    if word is not None:
        words.append(word)
    if not words or words[0] in KEYWORDS or ASSIGNMENT.match(words[0]):
        return None  # an assignment in front of a command changes what the command does
    return words


def _is_home(char: str, word: str | None) -> bool:
    return char == "~" and (word is None or word[-1:] in {"=", ":"})


def _is_odd(char: str) -> bool:
    """Whether a character is a control, or a blank that is not the plain one."""
    if " " <= char <= "~":
        return False
    return unicodedata.category(char)[0] in {"C", "Z"}


# ---------------------------------------------------------------- options of commands


def is_listed(flag: str, known: tuple[str, ...]) -> bool:
    """Whether an option is beyond doubt one of these, or several short ones of them in one word."""
    if flag in known or (flag.startswith("--") and flag.partition("=")[0] in known):
        return True
    return not flag.startswith("--") and all(f"-{letter}" in known for letter in flag[1:])


def means(flags: tuple[str, ...], known: tuple[str, ...]) -> bool | None:
    """Whether one of the options is one of these; None if one only may be."""
    for flag in flags:
        if flag in known or (flag.startswith("--") and flag.partition("=")[0] in known):
            return True
    return None if any(_may_mean(flag, known) for flag in flags) else False


def _may_mean(flag: str, known: tuple[str, ...]) -> bool:
    """Whether an option may be one of these: shortened, with one dash, or bundled with others."""
    name = flag.partition("=")[0]
    for each in known:
        if len(each) == 2:
            if not flag.startswith("--") and each[1] in flag[1:]:
                return True
        elif _shortens(name, each):
            return True
    return False


def _shortens(name: str, option: str) -> bool:
    """Whether it is a long option, or begins as that does and is more than one short one."""
    told = name.lstrip("-")
    if not told or not option.lstrip("-").startswith(told):
        return False
    return name.startswith("--") or len(name) > 2

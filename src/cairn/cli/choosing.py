"""What a person answers at a prompt: only the words that were offered decide anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from cairn.cli.say import print_line

YES, NO, LATER, GIVE_UP = ("y", "yes"), ("n", "no"), ("l", "later"), ("g", "give up")
MARKS = ",.;:!-—–…，。；：！"
"""What may stand between the word and the reason, as in `no, because`."""


def chosen(text: str, offered: Mapping[str, tuple[str, ...]], reason_of: str = "") -> str:
    """Which of the offered words a text is; empty where it is none of them.

    Args:
        text: What was typed. Case and the blanks around it do not count; everything else does.
        offered: The words of each choice.
        reason_of: The choice behind whose word a reason may stand, as in `no, too much`.
    """
    said = " ".join(text.casefold().split())
    for name, words in offered.items():
        if said in words:
            return name
        if name == reason_of and said.partition(" ")[0].rstrip(MARKS) in words:
            return name
    return ""


def reason_in(text: str) -> str:
    """What stands behind the word, as it was typed."""
    return text.strip().partition(" ")[2].strip()


def choose(
    prompt: str, offered: Mapping[str, tuple[str, ...]], reason_of: str = ""
) -> tuple[str, str]:
    """The choice that was made, with its reason; `later` at the end of the input.

    Whatever is none of the offered words decides nothing: it is asked again.
    """
    while (text := ask(prompt)) is not None:
        if choice := chosen(text, offered, reason_of):
            return choice, reason_in(text) if choice == reason_of else ""
        words = [f"{' or '.join(words)}" for words in offered.values()]
        print_line(f"nothing is decided: write {', '.join(words)}")
    return "later", ""


def ask(prompt: str) -> str | None:
    """A line from standard input; None at its end or after Ctrl-C."""
    try:
        text = input(prompt)
        if not sys.stdin.isatty():  # nobody saw it being typed
            print_line(text)
        return text
    except (EOFError, KeyboardInterrupt):
        sys.stdout.write("\n")
        return None

"""Who may decide a request for approval, and what a decision is bound to.

Terms are asked for when a call asks for approval, stand in the request, and are checked in the
write that decides it and once more right before the call starts. The identity itself is given by
whoever passes the decision on: the command line, a server, your own code.
"""

from __future__ import annotations

from collections.abc import Collection

from cairn.core.messages import Record
from cairn.errors import ConfigError, safe_repr

SECOND_US = 1_000_000
LONGEST_S = 10 * 366 * 24 * 3600.0


class ApprovalTerms(Record):
    """What an approval needs beside a yes.

    Args:
        roles: Roles any of which the approver must have; empty for anybody.
        other_person: The run's principal, and whoever wrote a message or an edit that led to the
            call, may not decide.
        expires_in: Seconds until the request expires; 0 for as long as the agent says.
        further: More sets of roles, one role of each of which is needed too. Made when several
            layers have terms; all of them hold then.

    Raises:
        ConfigError: a value is not usable.
    """

    roles: tuple[str, ...] = ()
    other_person: bool = False
    expires_in: float = 0.0
    further: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        further: object = self.further
        if not isinstance(further, tuple):
            fix = 'Give sets of names, as (("lead",), ("finance",))'
            raise ConfigError("terms.further", f"{safe_repr(further)} cannot be used", fix)
        given: tuple[object, ...] = (self.roles, *further)
        for each in given:
            if not isinstance(each, tuple) or not all(isinstance(r, str) and r for r in each):
                raise ConfigError(
                    "terms.roles", f"{safe_repr(each)} cannot be used", 'Give names, as ("lead",)'
                )
        if not isinstance(self.other_person, bool):
            raise ConfigError(
                "terms.other_person",
                f"{safe_repr(self.other_person)} cannot be used",
                "Give True or False",
            )
        length: object = self.expires_in
        numeric = isinstance(length, int | float) and not isinstance(length, bool)
        if not numeric or not 0 <= self.expires_in <= LONGEST_S:
            raise ConfigError(
                "terms.expires_in",
                f"{safe_repr(length)} is no length of time",
                "Give seconds as a number, 0 or more: 3600 is an hour",
            )

    @property
    def expires_us(self) -> int:
        """How long the request stays open, in microseconds; 0 for as long as the agent says."""
        return round(self.expires_in * SECOND_US)

    @property
    def needed(self) -> tuple[tuple[str, ...], ...]:
        """The sets of roles of each of which one is needed."""
        return tuple(each for each in (self.roles, *self.further) if each)


FREE = ApprovalTerms()


class BoundFile(Record):
    """A file whose content an approval is bound to; no hash when there is no such file."""

    path: str
    hash: str = ""


def narrowed(one: ApprovalTerms | None, other: ApprovalTerms | None) -> ApprovalTerms | None:
    """The terms that hold when both do."""
    if one is None or other is None or one == other:
        return one if other is None else other
    lengths = [each.expires_in for each in (one, other) if each.expires_in]
    first, *rest = dict.fromkeys((*one.needed, *other.needed)) or ((),)
    return ApprovalTerms(
        roles=first,
        other_person=one.other_person or other.other_person,
        expires_in=min(lengths, default=0.0),
        further=tuple(rest),
    )


def unmet(
    terms: ApprovalTerms | None, who: str, roles: Collection[str], authors: Collection[str]
) -> str:
    """What is missing for this person to decide, as the end of a sentence; empty for nothing.

    Args:
        terms: What is asked for.
        who: Id of the person, empty for nobody in particular.
        roles: The person's roles.
        authors: Ids of those who led to the call.
    """
    if terms is None or (not terms.needed and not terms.other_person):
        return ""
    if not who:
        return "needs to know who decides: say by whom"
    for needed in terms.needed:
        if not set(needed) & set(roles):
            one = f"the role {needed[0]}" if len(needed) == 1 else f"one of {', '.join(needed)}"
            has = f"has {', '.join(sorted(roles))}" if roles else "has none"
            return f"needs a person with {one}, and {who} {has}"
    if terms.other_person and who in authors:
        return f"needs another person than {who}, who asked for it or led to it"
    return ""


def described(terms: ApprovalTerms | None) -> str:
    """What is asked for, in words; empty for nothing."""
    if terms is None:
        return ""
    said = [" or ".join(each) for each in terms.needed]
    if terms.other_person:
        said.append("another person than asked")
    return ", ".join(said)

"""What a person is told of a request before they decide it: who asks, by which rule, on what terms.

A line for each thing, its name first and all in one column.
"""

from __future__ import annotations

from collections.abc import Iterator

from cairn.cli.plain import visible_line
from cairn.core.messages import Principal
from cairn.core.requests import Request
from cairn.core.terms import ApprovalTerms, BoundFile

NAME_WIDTH = 10
LONG = 400


def facts(item: Request) -> list[str]:
    """Lines on who asks, why, who may decide, and what a yes is bound to."""
    if item.kind != "approval":
        return []
    told = [("asked by", f"agent {item.agent} for {who(item.principal)}" if item.agent else "")]
    if item.instead_of:
        told.append(("redirected", f"in place of {item.instead_of}: {item.redirected}"))
    told += [("rule", item.rule), ("reason", item.reason), ("may decide", deciders(item.terms))]
    told += [("bound to", file_line(file)) for file in item.files]
    return [f"{name.ljust(NAME_WIDTH)}  {visible_line(text, LONG)}" for name, text in told if text]


def who(principal: Principal) -> str:
    """A principal with roles and tenant: `ann (clerk, lead; tenant acme)`."""
    more = [", ".join(principal.roles), f"tenant {principal.tenant}" if principal.tenant else ""]
    said = "; ".join(filter(None, more))
    return f"{principal.id} ({said})" if said else principal.id


def deciders(terms: ApprovalTerms | None) -> str:
    """Who may decide, in words: `anybody`, or `role lead, and another person than asked`."""
    return ", and ".join(_deciders(terms)) or "anybody"


def _deciders(terms: ApprovalTerms | None) -> Iterator[str]:
    if terms is None:
        return
    for needed in terms.needed:
        yield f"{'role' if len(needed) == 1 else 'one of the roles'} {', '.join(needed)}"
    if terms.other_person:
        yield "another person than who asked for it or led to it"


def file_line(file: BoundFile) -> str:
    """A bound file with the hash of what was in it: `deploy.sh, sha256 3a7b…`."""
    path = visible_line(file.path, LONG - 100)  # what follows is never cut off
    return f"{path}, {f'sha256 {file.hash}' if file.hash else 'which is not there'}"

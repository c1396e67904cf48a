"""May this call run: allow, ask or deny, and the rule that said so.

The floor stands above everything and nobody can widen it: a dangerous call is never better than
`ask`. Above it the deployment decides by tool name or effect; where it is silent the effect's
default holds. Layers below the deployment only narrow, and the strictest wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cairn.core.events import Effect
from cairn.core.messages import Record
from cairn.errors import ConfigError

Decision = Literal["allow", "ask", "deny"]
STRICTNESS: dict[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
DEFAULTS: dict[Effect, Decision] = {"read": "allow", "write": "ask", "dangerous": "ask"}


class Verdict(Record):
    """A decision and the rule that made it."""

    decision: Decision
    rule: str


class Policy(Record, gc=True):
    """The deployment's rules, by tool and by effect.

    Args:
        tools: Decision by tool name; wins over `effects`.
        effects: Decision by effect: read, write or dangerous.
        name: How its rules are called in the journal.

    Raises:
        ConfigError: a key or decision is not one of the allowed words.
    """

    tools: Mapping[str, Decision] = {}
    effects: Mapping[Effect, Decision] = {}
    name: str = "deployment"

    def __post_init__(self) -> None:
        for field, table in (("tools", self.tools), ("effects", self.effects)):
            for key, decision in table.items():
                if decision not in STRICTNESS:
                    raise ConfigError(
                        f"policy.{field}.{key}",
                        f"{decision!r} is no decision",
                        "Write allow, ask or deny",
                    )
        for effect in self.effects:
            if effect not in DEFAULTS:
                raise ConfigError(
                    f"policy.effects.{effect}",
                    "there is no such effect",
                    "Write read, write or dangerous",
                )

    def judge(self, tool: str, effect: Effect, arguments: Mapping[str, Any]) -> Verdict:
        """The verdict on one call.

        Args:
            tool: Name of the tool that would run.
            effect: Its declared effect.
            arguments: The validated arguments.
        """
        if tool in self.tools:
            found = Verdict(decision=self.tools[tool], rule=f"{self.name}: tool {tool}")
        elif effect in self.effects:
            found = Verdict(decision=self.effects[effect], rule=f"{self.name}: effect {effect}")
        else:
            found = Verdict(decision=DEFAULTS[effect], rule=f"default: {effect}")
        if effect == "dangerous" and found.decision == "allow":
            return Verdict(decision="ask", rule="floor: dangerous")
        return found


DEFAULT_POLICY = Policy()

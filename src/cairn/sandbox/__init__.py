"""The sandbox: walls around commands, the strongest that the machine offers, never none unsaid."""

from cairn.sandbox.ladder import Reached, Sandbox, probe
from cairn.sandbox.launch import Ended, Launch, Rung
from cairn.sandbox.limits import Limits
from cairn.sandbox.minimum import Minimum

__all__ = ["Ended", "Launch", "Limits", "Minimum", "Reached", "Rung", "Sandbox", "probe"]

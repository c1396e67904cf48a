"""The sandbox: walls around commands, the strongest that the machine offers, never none unsaid."""

from cairn.sandbox.ladder import Reached, Sandbox, probe
from cairn.sandbox.launch import Ended, Launch, Rung
from cairn.sandbox.limits import Limits

__all__ = ["Ended", "Launch", "Limits", "Reached", "Rung", "Sandbox", "probe"]

"""Cassettes record what a model was asked and what came, and play it back for ever."""

from __future__ import annotations

from cairn.models.cassette.player import Cassette

__all__ = ["Cassette"]

"""The servers room: a runtime's agents offered to others over a protocol."""

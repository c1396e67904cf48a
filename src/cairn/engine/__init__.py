"""The imperative shell: it claims a run, asks the core what to do, does it, and records it."""

"""Journals in one SQLite file: the embedded default."""

"""Policies as files, what in them can never matter, and how they would have decided before."""

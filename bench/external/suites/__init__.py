"""The third-party suites, each behind the same few functions."""

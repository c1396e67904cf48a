"""What Cairn ships for testing: contract suites that every adapter passes whole."""

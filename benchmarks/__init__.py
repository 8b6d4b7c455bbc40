"""Measurements and long checks that are too slow for the tests: run them with ``python -m benchmarks.NAME``."""

"""The command line."""

from corgi2.cli.program import cli, main

__all__ = ["cli", "main"]

"""The command line: one file per command, and what they share: options, signals, problems, words."""

from corgi2.cli.program import main
from corgi2.cli.root import cli

__all__ = ["cli", "main"]

"""The command line."""

from corgi2.cli.program import main
from corgi2.cli.root import cli

__all__ = ["cli", "main"]

"""The command line: one module per command, and what they share. It adds no capability to the library.

A new command is a module here that is imported in `program`, where everything begins. `root` is the command that all
others belong to, `options` has what several of them take, `signals` how they end, `problem` what they say when they
fail, `words` what else they say, and `dashes` turns the arguments that the library's errors name into options.
"""

from corgi2.cli.program import main
from corgi2.cli.root import cli

__all__ = ["cli", "main"]

"""The command line: one file per command, and what they share.

`program` is where it begins, `root` the command that all others belong to, `options` what several take, `signals`
how they end, `problem` what they say when they fail, `words` what they say besides, and `dashes` turns the
library's arguments in an error into options.
"""

from corgi2.cli.program import main
from corgi2.cli.root import cli

__all__ = ["cli", "main"]

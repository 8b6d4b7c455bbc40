"""What a caller may want to catch.

    Corgi2Error (Exception)
    ├── ShardError     a shard is damaged, or not what its name says
    ├── DamageError    several such, from a command that looks at all shards
    ├── SourceError    these shards cannot be one data set (mixed splits, mixed formats, none at all)
    └── StoreError     a store refused or failed, after the retries

Bad arguments raise ``ValueError`` or ``TypeError``. The command line prints any of these as one line.
"""

from collections.abc import Sequence


class Corgi2Error(Exception):
    """Base of all errors that are ours."""


class ShardError(Corgi2Error):
    """Names the shard, the byte offset where it went wrong, and what to do."""

    def __init__(self, shard: str, offset: int, problem: str) -> None:
        problem = _one_line(problem)
        super().__init__(shard, offset, problem)
        self.shard, self.offset, self.problem = shard, offset, problem

    def __str__(self) -> str:
        return f"{self.shard}: at byte {self.offset}: {self.problem}"


_SHOWN = 20


class DamageError(Corgi2Error):
    """All that was found in ``errors``; a line each for the first of them as text."""

    def __init__(self, errors: Sequence[ShardError]) -> None:
        super().__init__(errors)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        shown = [str(error) for error in self.errors[:_SHOWN]]
        more = len(self.errors) - len(shown)
        return "\n".join([*shown, f"and {more} more damaged shards"] if more else shown)


class SourceError(Corgi2Error):
    """Shards that cannot be read as one data set."""


class StoreError(Corgi2Error):
    """A store that refused (no such bucket, no permission) or kept failing."""


def _one_line(text: str) -> str:
    """What other libraries say may hold newlines, and names out of a damaged shard may hold anything."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))

"""What a caller may want to catch.

    Corgi2Error (Exception)
    ├── ShardError     a shard is damaged, or not what its name says
    │   ├── NoRecordError  it holds nothing that could be shuffled or learned from
    │   └── TooLargeError  what it holds does not fit the memory that reading may take
    ├── DamageError    several such, from a command that looks at all shards
    ├── SourceError    these shards cannot be one data set (mixed splits, mixed formats, none at all)
    └── StoreError     a store refused or failed, after the retries
        └── ChangedError   a file is not the one that was listed

Bad arguments raise ``ValueError`` or ``TypeError``. The command line prints any of these as one line. Each says by
``kind`` what sort of problem it is, in a word that stays, and by ``hint`` the way out, where there is one.
"""

from collections.abc import Sequence


class Corgi2Error(Exception):
    """Base of all errors that are ours. As text, the way out follows the problem."""

    kind = "other"

    def __init__(self, *arguments: object, hint: str | None = None, kind: str | None = None) -> None:
        super().__init__(*arguments)
        self.hint = hint
        if kind is not None:
            self.kind = kind

    @property
    def problem_text(self) -> str:
        """Without the way out."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.problem_text}; {self.hint}" if self.hint else self.problem_text


class ShardError(Corgi2Error):
    """Names the shard, the byte offset where it went wrong, and what to do."""

    kind = "shard"

    def __init__(self, shard: str, offset: int, problem: str) -> None:
        problem = _one_line(problem)
        super().__init__(shard, offset, problem)
        self.shard, self.offset, self.problem = shard, offset, problem

    @property
    def problem_text(self) -> str:
        return f"{self.shard}: at byte {self.offset}: {self.problem}"


class NoRecordError(ShardError):
    """A shard without a record."""


class TooLargeError(ShardError):
    """A record, or something else in a shard, that does not fit the memory that reading may take; ``needed`` is what
    would do, where it is known."""

    kind = "memory"

    def __init__(self, shard: str, offset: int, problem: str, needed: int = 0) -> None:
        super().__init__(shard, offset, problem)
        self.needed = needed


_SHOWN = 20


class DamageError(Corgi2Error):
    """All that was found in ``errors``; a line each for the first of them as text, and one for the way out."""

    kind = "shard"

    def __init__(self, errors: Sequence[ShardError], hint: str | None = None) -> None:
        super().__init__(errors, hint=hint)
        self.errors = tuple(errors)

    @property
    def problem_text(self) -> str:
        shown = [str(error) for error in self.errors[:_SHOWN]]
        more = len(self.errors) - len(shown)
        return "\n".join([*shown, f"and {more} more damaged shards"] if more else shown)

    def __str__(self) -> str:
        return f"{self.problem_text}\n{self.hint}" if self.hint and len(self.errors) > 1 else super().__str__()


class SourceError(Corgi2Error):
    """Shards that cannot be read as one data set."""

    kind = "source"


class StoreError(Corgi2Error):
    """A store that refused (no such bucket, no permission) or kept failing."""

    kind = "store"


class ChangedError(StoreError):
    """A file that is no more the one that was listed, or gone."""


def _one_line(text: str) -> str:
    """What other libraries say may hold newlines, and names out of a damaged shard may hold anything."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))

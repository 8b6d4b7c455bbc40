"""Errors that a caller may want to catch.

    Corgi2Error (Exception)
    ├── ShardError     a shard is damaged, or is not what its name says
    │   ├── NoRecordError  it holds nothing that could be shuffled or learned from
    │   ├── MissingShardError  it is gone, though the folder's own index names it
    │   └── TooLargeError  what it holds does not fit the memory that reading may take
    ├── DamageError    several such, from a command that looks at all shards
    ├── SourceError    these shards cannot be one data set (mixed splits, mixed formats, none at all)
    ├── MissingPackageError   a package is not installed, which only a part of corgi2 needs; an ImportError, too
    └── StoreError     a store refused or failed, after the retries
        └── ChangedError   a file is not the one that was listed

Bad arguments raise ``ValueError`` or ``TypeError``. The command line prints any of these as one line. ``kind`` is a
stable word for the sort of problem; ``hint`` is the way out, if there is one.
"""

from collections.abc import Sequence


class Corgi2Error(Exception):
    """Base class of all errors of corgi2. As text, the way out follows the problem."""

    kind = "other"

    def __init__(self, *arguments: object, hint: str | None = None, kind: str | None = None) -> None:
        super().__init__(*arguments)
        self.hint = hint
        if kind is not None:
            self.kind = kind

    @property
    def problem_text(self) -> str:
        """The text without the way out."""
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


class MissingShardError(ShardError):
    """A shard that is gone, though the folder's own index names it."""

    @property
    def problem_text(self) -> str:
        return f"{self.shard}: {self.problem}"


class TooLargeError(ShardError):
    """A record, or something else in a shard, that does not fit the memory that reading may take; ``needed`` is the
    buffer that would be enough, if known."""

    kind = "memory"

    def __init__(self, shard: str, offset: int, problem: str, needed: int = 0) -> None:
        super().__init__(shard, offset, problem)
        self.needed = needed


_SHOWN = 20


class DamageError(Corgi2Error):
    """All damage found, in ``errors``. As text: one line for each of the first errors, and one for the way out."""

    kind = "shard"

    def __init__(self, errors: Sequence[ShardError], hint: str | None = None) -> None:
        super().__init__(errors, hint=hint)
        self.errors = tuple(errors)

    @property
    def problem_text(self) -> str:
        shown = [str(error) for error in self.errors[:_SHOWN]]
        more = len(self.errors) - len(shown)
        return "\n".join([*shown, f"and {more} more damaged shard{'s' * (more > 1)}"] if more else shown)

    def __str__(self) -> str:
        return f"{self.problem_text}\n{self.hint}" if self.hint and len(self.errors) > 1 else super().__str__()


class SourceError(Corgi2Error):
    """Shards that cannot be read as one data set. ``instead``: what was typed, and what would do."""

    kind = "source"

    def __init__(
        self,
        *arguments: object,
        hint: str | None = None,
        kind: str | None = None,
        instead: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(*arguments, hint=hint, kind=kind)
        self.instead = instead


class MissingPackageError(Corgi2Error, ImportError):
    """A package of an extra, such as torch, is missing."""

    kind = "package"


class StoreError(Corgi2Error):
    """A store refused a request (no such bucket, no permission) or kept failing."""

    kind = "store"


class ChangedError(StoreError):
    """A file is no longer the one that was listed, or is gone."""


def _one_line(text: str) -> str:
    """Messages of other libraries may hold newlines, and names from a damaged shard may hold anything."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))

"""What a shuffle is to do: what a person chose, and what follows from it and from the source.

A recipe is all that the output's bytes depend on beside the records. It is kept in the target, written once, and an
unfinished target goes on with its own recipe and with no other.
"""

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from corgi2.dataset.seal import seal, unseal
from corgi2.errors import SourceError

_LARGEST_PASSES = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person may choose about a shuffle."""

    buffer_bytes: int | None = None
    buffer_blocks: int | None = None
    seed: int = 0
    passes: int = 1
    with_replacement: bool = False
    shard_bytes: int | None = None
    shard_records: int | None = None
    in_place: bool = False
    skip_bad: bool = False

    def __post_init__(self) -> None:
        for name in ("buffer_bytes", "buffer_blocks", "passes", "shard_bytes", "shard_records"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{_option(name)} must be at least 1 (got {value})")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative (got {self.seed})")
        if self.seed >= 1 << 64:
            raise ValueError(f"--seed must be less than 2^64 (got {self.seed})")
        if self.passes > _LARGEST_PASSES:
            raise ValueError(
                f"--passes {self.passes}: two mix almost any data set; more than {_LARGEST_PASSES} never help"
            )
        for name, reason in (
            ("with_replacement", "it would drop about half of the data, for ever"),
            ("skip_bad", "what is left out would be deleted"),
        ):
            if self.in_place and getattr(self, name):
                raise ValueError(f"{_option(name)} and --in-place do not go together: {reason}")
        if self.shard_bytes is not None and self.shard_records is not None:
            raise ValueError("--shard-size and --shard-records both say how long shards are; give one of them")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings, and what was settled with them."""

    source: str
    suffix: str
    settings: Settings
    buffer_bytes: int
    generation: int
    prefix: str
    """What new shards' paths begin with; a number of six digits and the suffix follow."""
    shards: int
    """How many the source has."""
    profile: str
    """What new shards keep of the old ones beside the records."""
    growth: float
    """The output's size over the input's, as predicted."""
    blocks_sha256: str
    """Of the source's shards and blocks as planned."""
    skipped: tuple[str, ...] = field(default=())
    """The damage in shards that were left out when this was planned."""
    key: int = field(default_factory=lambda: secrets.randbits(64))
    """Of the hashes that prove it. Nobody knows it beforehand, and no shard depends on it."""

    @property
    def id(self) -> str:
        """What markers name it by. Where every shard is sound, leaving out damaged ones changes nothing: a group that
        was made without --skip-bad is what it would be with it."""
        strict = replace(self, settings=replace(self.settings, skip_bad=False))
        return hashlib.sha256(strict.encode()).hexdigest()[:16]

    def lenient(self) -> "Recipe":
        """The same with --skip-bad."""
        return replace(self, settings=replace(self.settings, skip_bad=True))

    def equals(self, other: "Recipe") -> bool:
        """Whether both give the same shards."""
        return replace(self, key=0) == replace(other, key=0)

    def encode(self) -> bytes:
        return seal(json.dumps(asdict(self), indent=2).encode())

    @staticmethod
    def decode(data: bytes | bytearray, name: str) -> "Recipe":
        way_out = "restore it from a backup, or, if shards were copied, delete the folder to shuffle anew"
        try:
            values: dict[str, Any] = json.loads(bytes(unseal(data, name, way_out)))
            values |= {"settings": Settings(**values["settings"]), "skipped": tuple(values["skipped"])}
            return Recipe(**values)
        except (ValueError, TypeError, KeyError) as error:
            raise SourceError(f"{name}: the plan is damaged ({error}); {way_out}") from error

    def check(self, source: str, settings: Settings, where: str, is_done: bool, most: int | None = None) -> None:
        """Refuse to go on with other settings. A buffer that is not given is the one that was taken; a larger one, of
        ``most`` where there is a limit, is memory for blocks that need it, and changes no group."""
        if self.source != source:
            raise SourceError(
                f"{where}: holds a shuffle of {self.source}, not of {source}", hint="name an empty folder"
            )
        given = settings.buffer_bytes or self.buffer_bytes
        is_enough = self.buffer_bytes <= given <= (given if most is None else max(most, self.buffer_bytes))
        asked = replace(settings, buffer_bytes=self.settings.buffer_bytes if is_enough else given)
        for item in fields(Settings):
            ours, theirs = getattr(self.settings, item.name), getattr(asked, item.name)
            if ours != theirs:
                raise SourceError(
                    f"{where}: holds a shuffle with {_given(item.name, ours)}, not {_given(item.name, theirs)}",
                    hint=self._way_on(is_done),
                )

    def _way_on(self, is_done: bool) -> str:
        if is_done:
            return "it is finished: name an empty folder, or delete this one"
        same = "give the same command again to go on"
        return same if self.settings.in_place else f"{same}, --restart to discard it, or name an empty folder"


def _option(name: str) -> str:
    words = {"buffer_bytes": "--buffer", "shard_bytes": "--shard-size"}
    return words.get(name, "--" + name.replace("_", "-"))


def _given(name: str, value: object) -> str:
    if value is None or value is False:
        return f"no {_option(name)}"
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{_option(name)} {value if value % 1_000_000 else f'{value // 1_000_000}MB'}"
    return _option(name) if value is True else f"{_option(name)} {value}"

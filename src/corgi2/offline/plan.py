"""What a shuffle is to do: what a person chose, and what follows from it and from the source.

A plan is all that the output's bytes depend on beside the records. It is kept in the target, written once, and an
unfinished target resumes with its own plan and with no other.
"""

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from corgi2.dataset import seal, unseal
from corgi2.errors import SourceError
from corgi2.offline.settings import Settings, as_given
from corgi2.offline.skipped import Skipped, decode_skipped


@dataclass(frozen=True, slots=True)
class Plan:
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
    skipped: tuple[Skipped, ...] = field(default=())
    """The damage in shards that were left out when this was planned."""
    key: int = field(default_factory=lambda: secrets.randbits(64))
    """Of the hashes that prove it. Nobody knows it beforehand, and no shard depends on it."""

    @property
    def id(self) -> str:
        """What markers name it by. Where every shard is sound, leaving out damaged ones changes nothing: a group that
        was made without --skip-bad is what it would be with it."""
        strict = replace(self, settings=replace(self.settings, skip_bad=False))
        return hashlib.sha256(strict.encode()).hexdigest()[:16]

    def lenient(self) -> "Plan":
        """The same with --skip-bad."""
        return replace(self, settings=replace(self.settings, skip_bad=True))

    def equals(self, other: "Plan") -> bool:
        """Whether both give the same shards."""
        return replace(self, key=0) == replace(other, key=0)

    def encode(self) -> bytes:
        return seal(json.dumps(asdict(self), indent=2).encode())

    @staticmethod
    def decode(data: bytes | bytearray, name: str) -> "Plan":
        way_out = "restore it from a backup, or, if shards were copied, delete the folder to shuffle anew"
        try:
            values: dict[str, Any] = json.loads(bytes(unseal(data, name, way_out)))
            values |= {"settings": Settings(**values["settings"]), "skipped": decode_skipped(values["skipped"])}
            return Plan(**values)
        except (ValueError, TypeError, KeyError) as error:
            raise SourceError(f"{name}: the plan is damaged ({error}); {way_out}") from error

    def check(self, source: str, settings: Settings, where: str, is_done: bool, most: int | None = None) -> None:
        """Refuse to resume with other settings. A buffer that is not given is the one that was taken; a larger one, of
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
                    f"{where}: holds a shuffle with {as_given(item.name, ours)}, not {as_given(item.name, theirs)}",
                    hint=self._way_on(is_done),
                )

    def _way_on(self, is_done: bool) -> str:
        if is_done:
            return "it is finished: name an empty folder, or delete this one"
        same = "give the same command again to resume"
        return same if self.settings.in_place else f"{same}, restart=True to discard it, or name an empty folder"

"""What a shuffle is to do: what the user chose, and what follows from that and from the source.

A plan is everything that the output's bytes depend on besides the records. It is kept in the target, written once, and
an unfinished target resumes only with its own plan.
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
from corgi2.stores import Entry


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings, and what was decided with them."""

    source: str
    """The folder that paths are relative to."""
    named: str
    """The source as it was typed: a folder, a glob, a range."""
    options: dict[str, Any]
    """The options of its store, without secrets."""
    suffix: str
    settings: Settings
    buffer_bytes: int
    generation: int
    prefix: str
    """What new shards' paths begin with; a number of six digits and the suffix follow."""
    shards: int
    """How many shards the source has."""
    profile: str
    """What new shards keep of the old ones besides the records."""
    growth: float
    """The output's size over the input's, as predicted."""
    slack: float
    """What records take in memory over what was planned for them; known, and less than 1, if they were not counted and
    there is more than one pass."""
    blocks_sha256: str
    """The hash of the source's shards and blocks as planned."""
    skipped: tuple[Skipped, ...] = field(default=())
    """The errors of damaged shards that were left out when this was planned."""
    held: tuple[Entry, ...] = field(default=())
    """The shards that are held out, if whole shards are."""
    sibling: str = ""
    """In the plan of what was held out: where the rest is."""
    key: int = field(default_factory=lambda: secrets.randbits(64))
    """The key of the hashes that prove it. Nobody knows it beforehand, and no shard depends on it."""

    @property
    def id(self) -> str:
        """The name that markers use for it. If every shard is sound, leaving out damaged ones changes nothing: a group
        made without --skip-bad is what it would be with it."""
        strict = replace(self, settings=replace(self.settings, skip_bad=False), sibling="")
        return hashlib.sha256(strict.encode()).hexdigest()[:16]

    def lenient(self) -> "Plan":
        """The same with --skip-bad."""
        return replace(self, settings=replace(self.settings, skip_bad=True))

    def equals(self, other: "Plan") -> bool:
        """Whether both make the same new shards from the same shards, whatever these were called."""
        return self._nameless() == other._nameless()

    def _nameless(self) -> "Plan":
        return replace(self, key=0, named="", options={}, sibling="")

    def encode(self) -> bytes:
        held = [{"path": entry.path, "size": entry.size, "etag": entry.etag} for entry in self.held]
        return seal(json.dumps(asdict(replace(self, held=())) | {"held": held}, indent=2).encode())

    @staticmethod
    def decode(data: bytes | bytearray, name: str) -> "Plan":
        way_out = "restore it from a backup, or, if shards were copied, delete the folder to shuffle again"
        try:
            values: dict[str, Any] = json.loads(bytes(unseal(data, name, way_out)))
            values |= {"settings": Settings(**values["settings"]), "skipped": decode_skipped(values["skipped"])}
            values["held"] = tuple(Entry(**fields) for fields in values["held"])
            return Plan(**values)
        except (ValueError, TypeError, KeyError) as error:
            raise SourceError(f"{name}: the plan is damaged ({error}); {way_out}") from error

    def check(self, source: str, settings: Settings, where: str, is_done: bool, most: int | None = None) -> None:
        """Refuse to resume with other settings. A buffer that is not given is the one of the plan; a larger one, of
        ``most`` if there is a limit, is memory for blocks that need it, and changes no group."""
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
        same = "run the same command again to resume"
        return same if self.settings.in_place else f"{same}, restart=True to discard it, or name an empty folder"

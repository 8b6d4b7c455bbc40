"""What a shuffle keeps in its target, under ``.corgi2/c0/`` (in place: ``c1``, ``c2``, …, one per generation).

    plan                    what to do; written once, first
    source-3f2a…            the shards and blocks to read, as planned
    replaced-9c1e…          in place: old shards as they were put back since; these are read instead
    fate                    in place: whether old shards are consumed, or the shuffle was discarded; decided once
    beside/state.json       in place: files that describe shards, as they were; written anew before it is done
    lock                    who is at work: a courtesy, nothing depends on it
    pass-1/groups/000007    the marker of a group: what went in, what came out; written when its shards are there
    pass-1/000007-002.tar   a block between two passes; deleted once consumed
    done                    the sums of the whole; written last, after the index

A group with a marker is done for good. A group without one is made again, with the same bytes. Every file is sealed.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from corgi2.dataset import DONE_NAME, PLAN_NAME, run_folder, seal, unseal
from corgi2.errors import ChangedError, SourceError
from corgi2.host import HOST, is_alive
from corgi2.offline.skipped import Skipped, decode_skipped
from corgi2.records import Block, Digest
from corgi2.stores import Entry, Store, read_path

CONSUMED, DISCARDED = "consumed", "discarded"
"""What may become of a shuffle in place."""


@dataclass(frozen=True, slots=True)
class NewShard:
    """A shard that a group wrote."""

    path: str
    size: int
    checksum: bytes
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Marker:
    """What a group read and wrote."""

    group: int
    input: Digest
    output: Digest
    shards: tuple[NewShard, ...]
    skipped: tuple[Skipped, ...] = ()
    """The errors of damaged shards that were left out."""
    plan: str = ""
    """The plan that it was made by."""
    held: Digest = field(default_factory=Digest)
    """The digest of the records that were held out."""
    held_shards: tuple[NewShard, ...] = ()
    """The shards that they were written to, in their own folder."""

    @property
    def is_even(self) -> bool:
        """Whether the records read are those written, on both sides together."""
        return self.input == self.output + self.held

    def encode(self) -> bytes:
        return seal(json.dumps(self, default=_plain).encode())

    @staticmethod
    def decode(data: bytes | bytearray, name: str, way_out: str = "delete it to make its group again") -> "Marker":
        try:
            return _marker(json.loads(bytes(unseal(data, name, way_out))))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SourceError(f"{name}: the marker is damaged ({error}); {way_out}") from error


def _plain(value: Any) -> Any:
    """What JSON knows. A marker may have thousands of shards: `asdict` would copy all of them."""
    return value.hex() if isinstance(value, bytes) else {each.name: getattr(value, each.name) for each in fields(value)}


def _marker(found: dict[str, Any]) -> Marker:
    shards, held = (tuple(map(_new_shard, found[name])) for name in ("shards", "held_shards"))
    taken, given, aside = (Digest(**found[name]) for name in ("input", "output", "held"))
    skipped = decode_skipped(found["skipped"])
    return Marker(found["group"], taken, given, shards, skipped, found["plan"], aside, held)


def _new_shard(shard: dict[str, Any]) -> NewShard:
    return NewShard(
        shard["path"],
        shard["size"],
        bytes.fromhex(shard["checksum"]),
        tuple(Block(**block | {"checksum": bytes.fromhex(block["checksum"])}) for block in shard["blocks"]),
    )


@dataclass(frozen=True, slots=True)
class PassSum:
    """The sums of all groups of a pass."""

    groups: int
    input: Digest
    output: Digest
    held: Digest
    """What was held out."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a finished shuffle has done."""

    passes: tuple[PassSum, ...]
    skipped: tuple[Skipped, ...]
    """The errors of damaged shards that were left out while it ran."""
    buffer_bytes: int
    """The buffer of the run that finished it: the plan's, or more."""
    replaced: tuple[str, ...]
    """The files that say which shards were put back, if any."""

    def encode(self) -> bytes:
        return seal(json.dumps(asdict(self), indent=1).encode())

    @staticmethod
    def decode(data: bytes | bytearray, name: str) -> "Done":
        way_out = "restore it from a backup, or compare with the source: corgi2 verify SRC DST"
        try:
            fields = json.loads(bytes(unseal(data, name, way_out)))
            names = "input", "output", "held"
            sums = [PassSum(each["groups"], *(Digest(**each[name]) for name in names)) for each in fields["passes"]]
            rest = decode_skipped(fields["skipped"]), int(fields["buffer_bytes"]), tuple(fields["replaced"])
            return Done(tuple(sums), *rest)
        except (ValueError, TypeError, KeyError) as error:
            raise SourceError(f"{name}: is damaged ({error}); {way_out}") from error


@dataclass(frozen=True, slots=True)
class Journal:
    """The files of one shuffle in its target."""

    store: Store
    generation: int

    @property
    def folder(self) -> str:
        return run_folder(self.generation)

    @property
    def plan_path(self) -> str:
        return f"{self.folder}/{PLAN_NAME}"

    def source_path(self, sha256: str) -> str:
        """Named by its content, so that two plans that are made at once do not collide."""
        return f"{self.folder}/source-{sha256[:16]}"

    @property
    def _replaced_path(self) -> str:
        return f"{self.folder}/replaced-"

    def is_replaced(self, path: str) -> bool:
        return path.startswith(self._replaced_path)

    def write_replaced(self, entries: Sequence[Entry]) -> None:
        """Written before they are read: if one of them is found together with its group's marker, it was consumed."""
        data = json.dumps(
            [{"path": entry.path, "size": entry.size, "etag": entry.etag} for entry in entries], indent=1
        ).encode()
        self.store.publish(f"{self._replaced_path}{hashlib.sha256(data).hexdigest()[:16]}", [seal(data)])

    def replaced_paths(self) -> list[str]:
        return [entry.path for entry in self.store.list(self.folder, levels=1) if self.is_replaced(entry.path)]

    def read_replaced(self) -> set[Entry]:
        """All shards that were ever put back."""
        there = self.replaced_paths()
        return {Entry(**fields) for path in there for fields in json.loads(self._unsealed(path) or b"[]")}

    def _unsealed(self, path: str) -> bytes | None:
        """The content of a file, or None if there is no such file."""
        data = read_path(self.store, path)
        return None if data is None else bytes(unseal(data, f"{self.store.url}/{path}", "restore it from a backup"))

    @property
    def fate_path(self) -> str:
        return f"{self.folder}/fate"

    def fate(self) -> str | None:
        """The fate, or None if it is not decided."""
        data = self._unsealed(self.fate_path)
        return None if data is None else data.decode(errors="replace")

    def decide(self, fate: str) -> bool:
        """Whether this is the fate of a shuffle in place: the first to decide decides for good. Before old shards are
        deleted, the fate must be that they are; before new ones are, that no run will delete an old one."""
        if self.fate() is None:
            self.store.create(self.fate_path, seal(fate.encode()))
        return self.fate() == fate

    def side_path(self, name: str) -> str:
        """Where a file that describes shards lies while there are none that it describes."""
        return f"{self._side_folder}/{name}"

    @property
    def _side_folder(self) -> str:
        return f"{self.folder}/beside"

    def keep_side(self, name: str, data: bytes) -> bool:
        """Keep such a file, unless one is kept; whether it is this one."""
        self.store.create(self.side_path(name), seal(data))
        return self.read_side(name) == data

    def read_side(self, name: str) -> bytes | None:
        return self._unsealed(self.side_path(name))

    def side_paths(self) -> list[str]:
        return [entry.path for entry in self.store.list(self._side_folder, levels=1)]

    @property
    def done_path(self) -> str:
        return f"{self.folder}/{DONE_NAME}"

    def read_done(self) -> Done | None:
        """What was done, or None if the shuffle is not finished."""
        data = read_path(self.store, self.done_path)
        return None if data is None else Done.decode(data, f"{self.store.url}/{self.done_path}")

    def write_done(self, done: Done) -> None:
        self.store.publish(self.done_path, [done.encode()])

    @property
    def lock_path(self) -> str:
        return f"{self.folder}/lock"

    def pass_folder(self, number: int) -> str:
        return f"{self.folder}/pass-{number}"

    def marker_path(self, number: int, group: int) -> str:
        return f"{self.pass_folder(number)}/groups/{group:06d}"

    def maker_of(self, path: str) -> tuple[int, int] | None:
        """The pass and the group that wrote a shard between two passes."""
        match = re.fullmatch(rf"{re.escape(self.folder)}/pass-(\d+)/(\d+)-\d+\.[^/]*", path)
        return (int(match[1]), int(match[2])) if match else None

    def between(self, passes: int) -> list[str]:
        """Blocks that lie between the passes."""
        folders = [self.pass_folder(number) for number in range(1, passes)]
        return [entry.path for folder in folders for entry in self.store.list(folder, levels=1)]

    def marked(self, number: int, groups: int) -> list[int]:
        """The groups of a pass that are done."""
        there = {entry.path for entry in self.store.list(f"{self.pass_folder(number)}/groups")}
        return [group for group in range(groups) if self.marker_path(number, group) in there]

    def read_marker(self, number: int, group: int) -> Marker | None:
        path = self.marker_path(number, group)
        data = read_path(self.store, path)
        if data is None:
            return None
        is_consumed = self.generation or number > 1  # its group cannot be made again
        way_out = "restore it from a backup" if is_consumed else "delete it to make its group again"
        return Marker.decode(data, f"{self.store.url}/{path}", way_out)

    def write_marker(self, number: int, marker: Marker, read_back: bool) -> None:
        """``read_back`` if something will be deleted because the marker is there."""
        self.store.publish(self.marker_path(number, marker.group), [marker.encode()])
        if read_back and self.read_marker(number, marker.group) != marker:
            path = self.marker_path(number, marker.group)
            raise SourceError(f"{self.store.url}/{path}: is not what was written there; nothing was deleted")

    @contextmanager
    def lock(self) -> Iterator[str | None]:
        """Record who is at work, while it lasts; yields who else seems to be. An interrupt does not wait for a
        store."""
        other = self.other()
        mine = {"host": HOST, "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S %Z")}
        self.store.publish(self.lock_path, [seal(json.dumps(mine).encode())])
        try:
            yield other
        except Exception:
            self.store.delete(self.lock_path)
            raise
        else:
            self.store.delete(self.lock_path)

    def other(self) -> str | None:
        """Who seems to be at work."""
        try:
            lock = json.loads(self._unsealed(self.lock_path) or b"")
            host, pid, since = str(lock["host"]), int(lock["pid"]), str(lock["since"])
        except (ChangedError, SourceError, ValueError, KeyError, TypeError):
            return None  # just removed or written, or from a later version; a courtesy may fail
        if host == HOST and not is_alive(pid):
            return None
        return f"process {pid} on {host}, since {since}"

"""Where held-out records go: a folder with a plan, markers, an index and sums of its own.

So it cannot be mistaken for finished before it is, and it can be verified alone. By record, a group writes its held
records, then its marker here, then its marker in the target, which lists both sides. By shard, shards are copied byte
for byte, each with a marker of its own; in place, the originals are deleted once the copy was read back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from corgi2.budget import reading_bytes
from corgi2.dataset import Index, Source, encode_index, save_index, schema_difference
from corgi2.errors import ShardError, SourceError, StoreError
from corgi2.offline.journal import CONSUMED, Done, Journal, Marker, NewShard, PassSum
from corgi2.offline.names import new_shards
from corgi2.offline.new_shards import Origin, check_there, index_of
from corgi2.offline.passes import Pass
from corgi2.offline.plan import Plan
from corgi2.offline.skipped import Skipped
from corgi2.records import BLOCK_BYTES, Buffer, Checksum, Digest, checksum_of
from corgi2.stores import Entry, Requests, Store, StoredShard, counting, read_path, upload_bytes

_GONE = "restore it, or give restart=True to discard what was written and start over"


@dataclass(frozen=True, slots=True)
class Aside:
    """Where held-out records go, and what is kept there."""

    store: Store
    plan: Plan
    """As the target keeps it."""
    sibling: str
    """The target."""

    @property
    def journal(self) -> Journal:
        return Journal(self.store, 0)

    @property
    def _own_plan(self) -> Plan:
        return replace(self.plan, sibling=self.sibling)

    def begin(self, index: Index) -> None:
        """Write the plan, unless it is there; another plan there is an error."""
        path = self.journal.plan_path
        name = f"{self.store.url}/{path}"
        found = read_path(self.store, path)
        if found is None:
            self.store.publish(self.journal.source_path(self.plan.blocks_sha256), [encode_index(index)])
            self.store.create(path, self._own_plan.encode())
            found = read_path(self.store, path)
        if found is None or Plan.decode(found, name).id != self.plan.id:
            raise SourceError(f"{name}: belongs to another shuffle; name an empty folder")
        self.store.sweep()

    def settle(self, marker: Marker, read_back: bool) -> None:
        """Write a group's marker here; read it back if what the group was made of will be deleted."""
        if read_back:
            for shard in marker.held_shards:
                self.check(shard)
        own = Marker(marker.group, marker.held, marker.held, marker.held_shards, (), marker.plan)
        self.journal.write_marker(1, own, read_back)

    def check(self, shard: NewShard) -> None:
        entry = self.store.head(shard.path)
        if entry is None or entry.size != shard.size or checksum_of(StoredShard(self.store, entry)) != shard.checksum:
            raise SourceError(f"{self.store.url}/{shard.path}: is not what was written there; nothing was deleted")

    def finish(self, first: Pass | None, schema: str, groups: int, buffer_bytes: int) -> Index:
        """Write the index and the sums, once everything is there."""
        markers = [self._marker(group) for group in range(groups)]
        pairs = [
            (shard, first.origin(marker.group) if first else Origin()) for marker in markers for shard in marker.shards
        ]
        there = check_there(self.store, [shard for shard, _ in pairs], _GONE)
        index = index_of(self.plan.suffix, schema, pairs, there)
        stale = set() if self.plan.held else new_shards(self.plan, there) - {shard.path for shard, _ in pairs}
        for path in sorted(stale):  # of a group that holds out fewer since a shard was replaced
            self.store.delete(path)
        save_index(self.store, index)
        held = sum((marker.output for marker in markers), Digest())
        skipped = tuple(each for marker in markers for each in marker.skipped)
        self.journal.write_done(Done((PassSum(groups, held, held, Digest()),), skipped, buffer_bytes, ()))
        self.store.sweep()
        return index

    def _marker(self, group: int) -> Marker:
        marker = self.journal.read_marker(1, group)
        if marker is None or marker.plan != self.plan.id:
            name = f"{self.store.url}/{self.journal.marker_path(1, group)}"
            raise SourceError(f"{name}: is gone, or belongs to another shuffle", hint=_GONE)
        return marker


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies the shards that are held out, each with a marker of its own."""

    source: Source
    """The source, for its format and its store; any of its shards will do."""
    aside: Aside
    target: Journal
    schema: str
    moved: Requests
    """For the copies."""

    def run(self, entries: Sequence[Entry], advance: Callable[[int], object]) -> list[Skipped]:
        """Copy all of them, except those that are already there; in place, the originals are deleted."""
        in_place, skipped = self.aside.plan.settings.in_place, list[Skipped]()
        for number, entry in enumerate(entries):
            marker = self.aside.journal.read_marker(1, number) or self._copied(number, entry, in_place)
            skipped += marker.skipped
            if in_place:
                self._delete(entry)
            advance(entry.size)
        return skipped

    def _copied(self, number: int, entry: Entry, in_place: bool) -> Marker:
        plan, file = self.aside.plan, StoredShard(self.source.store, entry)
        try:
            marker = self._copy(number, file)
        except ShardError as error:
            if not plan.settings.skip_bad:
                raise
            marker = Marker(number, Digest(), Digest(), (), (Skipped.of(error),), plan.id)
        except StoreError:
            found = self.aside.journal.read_marker(1, number) if in_place else None
            if found is None:
                raise
            return found  # copied by another run, which has deleted it since
        for shard in marker.shards if in_place else ():
            self.aside.check(shard)
        self.aside.journal.write_marker(1, marker, read_back=in_place)
        return marker

    def _copy(self, number: int, file: StoredShard) -> Marker:
        plan, format = self.aside.plan, self.source.format
        memory = reading_bytes(plan.buffer_bytes) // 2
        scan = format.scan(file, BLOCK_BYTES, memory)
        if self.schema and scan.schema != self.schema:
            raise SourceError(f"{file.name}: has other columns: {schema_difference(self.schema, scan.schema)}")
        found = sum((format.digest(table, plan.key) for table in format.stream(file, memory)), Digest())
        checksum, part = Checksum(), upload_bytes(plan.buffer_bytes)
        store = counting(self.aside.store, self.moved)
        written = store.publish(file.entry.path, _bytes_of(file, part, checksum), part)
        shard = NewShard(file.entry.path, written.size, checksum.digest(), scan.blocks)
        return Marker(number, found, found, (shard,), (), plan.id)

    def _delete(self, entry: Entry) -> None:
        """Delete a shard, but not before it is decided that the copy stays, nor if it was replaced since."""
        found = self.source.store.head(entry.path)
        if found is None:
            return
        if found.size != entry.size:
            raise SourceError(
                f"{self.source.url}/{entry.path}: has changed, and its old content is already held out; move it away"
            )
        if not self.target.decide(CONSUMED):
            raise SourceError(f"{self.source.url}: the shuffle in place was discarded meanwhile; nothing was deleted")
        self.source.store.delete(entry.path)


def _bytes_of(file: StoredShard, part_bytes: int, checksum: Checksum) -> Iterator[Buffer]:
    for start in range(0, file.size, part_bytes):
        view = memoryview(bytearray(min(part_bytes, file.size - start)))
        file.readinto(start, view)
        checksum.update(view)
        yield view

"""Random data sets of a few dozen shards, and their records, counted by readers that are not ours. All differ."""

import gzip
import io
import json
import random
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from benchmarks.corpus import bodies_of, framed
from corgi2.dataset.sealing import unseal

Files = Mapping[str, bytes]
"""The content of a folder, by path."""
Records = Counter[str]
KEPT = ".corgi2/"


def make_shards(suffix: str, chance: random.Random) -> dict[str, bytes]:
    """Keys restart in every shard."""
    counts = [chance.randint(2, 30) for _ in range(chance.randint(24, 40))]
    return {f"data-{shard:04d}{suffix}": _shard(suffix, shard, count, chance) for shard, count in enumerate(counts)}


def _shard(suffix: str, shard: int, count: int, chance: random.Random) -> bytes:
    texts = [f"{shard} {number} {'x' * chance.randrange(300)}" for number in range(count)]
    if suffix == ".parquet":
        sink = io.BytesIO()
        pq.write_table(pa.table({"t": texts}), sink, row_group_size=chance.randint(3, 20))
        return sink.getvalue()
    data = _plain(suffix, texts)
    if suffix.endswith(".gz"):
        return gzip.compress(data, 1, mtime=0)
    return zstandard.compress(data) if suffix.endswith(".zst") else data


def _plain(suffix: str, texts: Iterable[str]) -> bytes:
    if suffix.startswith(".tfrecord"):
        return b"".join(framed(text.encode()) for text in texts)
    return _tar(texts) if suffix.startswith(".tar") else "".join(json.dumps({"t": t}) + "\n" for t in texts).encode()


def _tar(texts: Iterable[str]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, text in enumerate(texts):
            member = tarfile.TarInfo(f"{number:04d}.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return sink.getvalue()


def shards(files: Files) -> dict[str, bytes]:
    """Without what a shuffle keeps beside them, and what it was writing when it died."""
    return {path: data for path, data in files.items() if not path.startswith(KEPT) and not is_temporary(path)}


def is_temporary(path: str) -> bool:
    return path.endswith(".corgi2-tmp")


def records(files: Files) -> Records:
    """Of all shards."""
    return sum((_records(path, data) for path, data in files.items()), Counter())


def _records(path: str, data: bytes) -> Records:
    if path.endswith(".parquet"):
        return Counter(pq.read_table(io.BytesIO(data))["t"].to_pylist())
    if path.endswith(".gz"):
        data = gzip.decompress(data)
    elif path.endswith(".zst"):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if ".jsonl" in path:
        return Counter(json.loads(line)["t"] for line in data.splitlines())
    if ".tfrecord" in path:
        return Counter(body.decode() for body in bodies_of(data))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [archive.extractfile(member) for member in archive]
        return Counter(member.read().decode() for member in members if member)


def generation(files: Files, in_place: bool) -> int:
    """The latest shuffle that was planned in a folder; in place there may be several, and none is 0."""
    return max((number for number in range(int(in_place), 10) if f"{KEPT}c{number}/plan" in files), default=0)


def is_done(files: Files, number: int) -> bool:
    return f"{KEPT}c{number}/done" in files


def marked(files: Files, run: int, number: int, side: str = "shards") -> list[str]:
    """The shards that the markers of a pass name."""
    folder = f"{KEPT}c{run}/pass-{number}/groups/"
    bodies = [data for path, data in files.items() if path.startswith(folder) and not is_temporary(path)]
    return [str(shard["path"]) for body in bodies for shard in json.loads(bytes(unseal(body, folder, "")))[side]]


def held_out(files: Files, run: int, aside: Files) -> list[str]:
    """The shards of the other target that are safe there: by record, those that a group's marker lists; by shard, those
    that have a marker of their own."""
    plan = files.get(f"{KEPT}c{run}/plan")
    if plan is None:
        return []
    if json.loads(bytes(unseal(plan, "plan", "")))["held"]:
        return marked(aside, 0, 1)
    return marked(files, run, 1, "held_shards")


def surviving(files: Files, first: Iterable[str], run: int, passes: int, aside: Files | None = None) -> Records:
    """The records that a shuffle in place still has, wherever it was stopped: those of shards that a marker names, and
    those of older shards, but for shards that wait to be deleted, because all of their records are in newer ones."""
    levels = [first, *(marked(files, run, number) for number in range(1, passes + 1))]
    found: Records = records({path: (aside or {})[path] for path in held_out(files, run, aside or {})})
    for level in reversed(levels):
        newer = found.copy()
        for shard in (_records(path, files[path]) for path in level if path in files):
            if not shard <= newer:
                found += shard
    return found

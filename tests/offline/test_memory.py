"""Memory that is promised in bytes is kept in bytes: 1.15 × buffer + 200 MB, all included, whatever the format."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgi2.budget import promised
from tests.bombs import BOMBS
from tests.conftest import S3

BUFFER = 200_000_000
SHARDS, SHARD_BYTES = 10, 40_000_000

_RUN = """
import json, sys
from pathlib import Path
import corgi2

report = corgi2.shuffle(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(report.groups, int(peak.split()[1]) * 1024)
"""


def _tar(size: int) -> Callable[[np.random.Generator], bytes]:
    def make(rng: np.random.Generator) -> bytes:
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for number in range(SHARD_BYTES // 8 // (512 + -(-size // 512) * 512)):
                member = tarfile.TarInfo(f"{number:06d}.bin")
                member.size = size
                archive.addfile(member, io.BytesIO(rng.bytes(size)))
            end = archive.offset
        return sink.getvalue()[:end] * 8 + bytes(1024)

    return make


def _lines(size: int, codec: str | None = None, times: int = 8) -> Callable[[np.random.Generator], bytes]:
    def make(rng: np.random.Generator) -> bytes:
        text = rng.bytes(SHARD_BYTES // 16).hex()
        lines = [f'{{"t": "{text[at : at + size]}"}}\n' for at in range(0, len(text), size)]
        data = "".join(lines * times).encode()
        return bytes(pa.Codec(codec).compress(data)) if codec else data

    return make


def _rows(rng: np.random.Generator) -> bytes:
    rows = SHARD_BYTES // 320 // 8 * 8
    texts = [rng.bytes(145).hex() for _ in range(rows // 8)] * 8
    table = pa.table({"id": rng.integers(0, 1 << 40, rows), "value": rng.random(rows), "text": texts})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows // 2)
    return bytes(sink.getvalue())


def _columns(rng: np.random.Generator) -> bytes:
    rows = SHARD_BYTES // 200
    sink = pa.BufferOutputStream()
    table = pa.table({f"c{number}": rng.random(rows).astype(np.float32) for number in range(50)})
    pq.write_table(table, sink, row_group_size=rows // 4, use_dictionary=False)
    return bytes(sink.getvalue())


def _images(rng: np.random.Generator) -> bytes:
    """Two row groups, each one page: pyarrow looks at the size of a page every 1,024 values."""
    images = [rng.bytes(size) for size in rng.integers(8_000, 100_000, SHARD_BYTES // 54_000).tolist()]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"image": images, "label": list(range(len(images)))}), sink, row_group_size=-(-len(images) // 2)
    )
    return bytes(sink.getvalue())


def _lists(rng: np.random.Generator) -> bytes:
    values = pa.array(rng.integers(0, 100, SHARD_BYTES // 4).astype(np.float32))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 1_000)}), sink, row_group_size=3_000)
    return bytes(sink.getvalue())


_EVERYTHING = """
import os, sys, threading, time
from pathlib import Path
import corgi2

src, dst, buffer = sys.argv[1], sys.argv[2], int(sys.argv[3])

def size(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

def guard():
    while size("VmRSS") < 1_000_000_000:
        time.sleep(0.02)
    os.write(2, b"more than 1 GB\\n")
    os._exit(9)

threading.Thread(target=guard, daemon=True).start()

def load():
    for batch in corgi2.Loader(src, batch_size=64, buffer=buffer):
        pass

TASKS = {
    "shuffle": lambda: corgi2.shuffle(src, dst, buffer=buffer),
    "inspect": lambda: corgi2.inspect(src, buffer=buffer),
    "verify": lambda: corgi2.verify(src, src, buffer=buffer),
    "load": load,
}
try:
    TASKS[sys.argv[4]]()
    result = "done"
except (corgi2.Corgi2Error, ValueError) as error:
    result = str(error).splitlines()[0]
print(size("VmHWM"), result, sep="\\t")
"""
TASKS = ("shuffle", "inspect", "verify", "load")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_whatever_a_shard_holds_memory_is_kept_or_refused_before_it_is_taken(name: str, tmp_path: Path) -> None:
    """By all that reads shards, with a small buffer; a loader is promised more where it decodes."""
    (tmp_path / "in").mkdir()
    BOMBS[name](tmp_path / "in")
    shards, buffer = len(list((tmp_path / "in").iterdir())), 50_000_000
    for task in TASKS:
        words = [str(tmp_path / "in"), str(tmp_path / "out"), str(buffer), task]
        done = subprocess.run([sys.executable, "-c", _EVERYTHING, *words], check=True, capture_output=True, text=True)
        peak, result = done.stdout.split("\t")
        beside = 40_000_000 if task == "load" else 0
        assert int(peak) <= promised(buffer, shards, shards) + beside, f"{task}: {int(peak) / 1e6:.0f} MB ({result})"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("suffix", "make", "passes"),
    [
        (".tar", _tar(3000), 1),
        (".tar", _tar(100), 2),
        (".jsonl", _lines(50), 1),
        (".jsonl.zst", _lines(500, "zstd"), 1),
        (".jsonl.zst", _lines(500, "zstd", 32), 1),
        (".parquet", _rows, 2),
        (".parquet", _columns, 1),
        (".parquet", _images, 1),
        (".parquet", _lists, 1),
    ],
    ids=[
        "tar",
        "tar-small",
        "lines-small",
        "lines-zstd",
        "lines-zstd-one-a-group",
        "parquet-text",
        "parquet-wide",
        "parquet-images",
        "parquet-lists",
    ],
)
def test_a_shuffle_stays_within_its_buffer(
    suffix: str, make: Callable[[np.random.Generator], bytes], passes: int, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(SHARDS):
        (tmp_path / "in" / f"data-{shard:03d}{suffix}").write_bytes(make(np.random.default_rng(shard)))
    _shuffle_within_the_buffer(tmp_path / "in", tmp_path / "out", passes=passes)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(("suffix", "make"), [(".tar", _tar(3000)), (".parquet", _rows)], ids=["tar", "parquet-text"])
def test_an_object_store_keeps_nothing_beside_the_buffer(
    suffix: str, make: Callable[[np.random.Generator], bytes], weed: S3, tmp_path: Path
) -> None:
    """Shards that are small enough to be written whole, and such that go in parts; written, then read as well."""
    (tmp_path / "in").mkdir()
    for shard in range(6):
        (tmp_path / "in" / f"data-{shard:03d}{suffix}").write_bytes(make(np.random.default_rng(shard)))
    there, again = (f"{weed.url}/{name}" for name in ("one", "two"))
    options = weed.options | {"timeout": 60}
    weed.proxy.seen.clear()
    _shuffle_within_the_buffer(tmp_path / "in", there, dst_options=options, shard_size="120MB")
    assert any("partNumber" in path for _, path in weed.proxy.seen)
    _shuffle_within_the_buffer(there, again, shard_size="20MB", src_options=options, dst_options=options)
    _load_within_the_buffer(there, suffix, BUFFER, src_options=options)


def _shuffle_within_the_buffer(src: Path | str, dst: Path | str, passes: int = 1, **options: Any) -> None:
    words = json.dumps({"buffer": BUFFER, "passes": passes, "force": True, **options})
    command = [sys.executable, "-c", _RUN, str(src), str(dst), words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    groups, peak = map(int, done.stdout.split())
    assert groups > passes
    assert peak <= 1.15 * BUFFER + 200_000_000, f"{peak / 1e6:.0f} MB"


_LOAD = """
import json, sys
from pathlib import Path
import corgi2

def size(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

loader = corgi2.Loader(sys.argv[1], batch_size=64, **json.loads(sys.argv[2]))
before = size("VmRSS")
records = sum(len(next(iter(batch.values()))) for batch in loader)
assert records == loader.catalog.index.records
print(loader.world(1).window, loader.catalog.index.blocks.num_rows, size("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("suffix", "make"),
    [
        (".tar", _tar(3000)),
        (".tar", _tar(100)),
        (".jsonl", _lines(50)),
        (".jsonl.zst", _lines(500, "zstd")),
        (".parquet", _rows),
        (".parquet", _columns),
        (".parquet", _images),
    ],
    ids=["tar", "tar-small", "lines-small", "lines-zstd", "parquet-text", "parquet-wide", "parquet-images"],
)
def test_a_loader_stays_within_its_buffer(
    suffix: str, make: Callable[[np.random.Generator], bytes], tmp_path: Path
) -> None:
    """All that comes on top of the process as it was: two halves of the buffer, a slice, a batch."""
    (tmp_path / "in").mkdir()
    for shard in range(SHARDS):
        (tmp_path / "in" / f"data-{shard:03d}{suffix}").write_bytes(make(np.random.default_rng(shard)))
    first = [sys.executable, "-c", "import corgi2, sys; corgi2.Loader(sys.argv[1])", str(tmp_path / "in")]
    subprocess.run(first, check=True, capture_output=True)  # counts, and keeps the index
    _load_within_the_buffer(tmp_path / "in", suffix, 2 * BUFFER)


def _load_within_the_buffer(place: Path | str, suffix: str, buffer: int, **options: Any) -> None:
    command = [sys.executable, "-c", _LOAD, str(place), json.dumps({"buffer": buffer, **options})]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    window, blocks, peak = map(int, done.stdout.split())
    assert 1 <= window < blocks
    beside = 130_000_000 if suffix == ".parquet" else 50_000_000
    assert peak <= 1.15 * buffer + beside, f"{peak / 1e6:.0f} MB"

"""Small files, or sparse ones, that would take much more memory than they seem to, if a reader let them: some for each
format, and folders of very many shards."""

import io
import json
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Bomb = Callable[[Path], object]
MB = 1_000_000


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def _sparse(path: Path, front: bytes, hole: int, back: bytes) -> None:
    """A file with a hole in it, which no disk has to hold."""
    with path.open("wb") as file:
        file.write(front)
        file.seek(hole, io.SEEK_CUR)
        file.write(back)


def _member(size: int) -> Bomb:
    def make(folder: Path) -> None:
        few = b"".join(_header(f"{n}.x", 1) + b"1" + bytes(511) for n in range(3))
        _sparse(folder / "a.tar", few + _header("huge.x", size), -(-size // 512) * 512, bytes(1024))
        (folder / "b.tar").write_bytes(few + bytes(1024))

    return make


def _compressed_member(codec: str, suffix: str) -> Bomb:
    def make(folder: Path) -> None:
        with pa.CompressedOutputStream(str(folder / f"a.tar{suffix}"), codec) as stream:
            stream.write(_header("huge.x", 600 * MB // 512 * 512))
            for _ in range(600):
                stream.write(bytes(MB // 512 * 512))
            stream.write(bytes(600 * MB // 512 * 512 - 600 * (MB // 512 * 512) + 1024))

    return make


def _empty_members(folder: Path) -> None:
    one = b"".join(_header(f"{n:06d}.x", 0) for n in range(2_000))
    for shard in range(2):
        with (folder / f"{shard}.tar").open("wb") as file:
            for _ in range(60):
                file.write(one)
            file.write(bytes(1024))


def _pax_header(folder: Path) -> None:
    size = 200 * MB
    _sparse(
        folder / "a.tar", _header("x", size, tarfile.XHDTYPE), -(-size // 512) * 512, _header("a.x", 0) + bytes(1024)
    )


def _no_newline(folder: Path) -> None:
    _sparse(folder / "a.jsonl", b'{"a": "', 3_200 * MB, b'"}')


def _long_line(folder: Path) -> None:
    _sparse(folder / "a.jsonl", b'{"a": 1}\n{"a": "', 1_000 * MB, b'"}\n{"a": 2}\n')


def _repeated(folder: Path, name: str, line: bytes, times: int, codec: str | None = None) -> None:
    chunk = line * (MB // len(line))
    target = str(folder / name)
    with pa.CompressedOutputStream(target, codec) if codec else pa.OSFile(target, "wb") as stream:
        for _ in range(times * len(line) // len(chunk)):
            stream.write(chunk)


def _compressed_lines(folder: Path) -> None:
    _repeated(folder, "a.jsonl.zst", b"1\n", 60 * MB, "zstd")


def _tiny_lines(folder: Path) -> None:
    for shard in range(3):
        _repeated(folder, f"{shard}.jsonl", b"1\n", 12 * MB)


def _blank_lines(folder: Path) -> None:
    _repeated(folder, "a.jsonl", b" " * 99 + b"\n", 3 * MB)
    with (folder / "a.jsonl").open("ab") as file:
        file.write(b"1\n")


def _parquet(make: Callable[[], pa.Table], **options: object) -> Bomb:
    def write(folder: Path) -> None:
        table = make()
        for shard in range(2):
            pq.write_table(table, folder / f"{shard}.parquet", row_group_size=table.num_rows, **options)

    return write


def _repeating(size: int, rows: int) -> pa.Array:
    values = pa.array(["x" * size])
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), values)


def _long_word() -> pa.Table:
    return pa.table({"a": _repeating(100_000, 80_000), "n": np.arange(80_000)})


def _long_words_in_lists() -> pa.Table:
    words = _repeating(100_000, 80_000)
    return pa.table({"a": pa.ListArray.from_arrays(pa.array(np.arange(0, 80_001, 4, dtype=np.int32)), words)})


def _long_words_in_one_list(words_in_it: int = 100_000) -> pa.Table:
    """Of few rows among many that hold next to nothing."""
    counts = np.ones(40_000, np.int64)
    counts[[7, 20_000]] = words_in_it
    number = np.repeat((counts == 1).astype(np.int32), counts)
    words = pa.DictionaryArray.from_arrays(pa.array(number), pa.array(["x" * 20_000, "y"]))
    return pa.table({"a": pa.ListArray.from_arrays(pa.array(np.cumsum([0, *counts]), pa.int32()), words)})


def _long_prefix() -> pa.Table:
    return pa.table({"a": ["x" * 40_000 + f"{n}" for n in range(5_000)]})


def _constant() -> pa.Table:
    return pa.table({"n": pa.array(np.zeros(40 * MB, np.int64))})


def _one_value() -> pa.Table:
    return pa.table({"a": [b"1", bytes(200 * MB), b"2"]})


def _one_list() -> pa.Table:
    values = pa.array(np.zeros(30 * MB, np.float32))
    return pa.table({"v": pa.ListArray.from_arrays(pa.array([0, 10, 30 * MB - 10, 30 * MB], pa.int32()), values)})


def _wide_schema() -> pa.Table:
    return pa.table({f"column_{n}": [n, n] for n in range(4_000)})


def _many_shards(folder: Path) -> None:
    for shard in range(12_000):
        (folder / f"shard-{shard:06d}.jsonl").write_text(json.dumps({"n": shard}) + "\n")


def _plain(make: Callable[[], pa.Table]) -> Bomb:
    return _parquet(make, store_schema=False, compression="zstd")


BOMBS: dict[str, Bomb] = {
    "tar: a member of 9 GB": _member(9_000 * MB),
    "tar: a member of 300 MB": _member(300 * MB),
    "tar: a member of 45 MB": _member(45 * MB),
    "tar.gz: a member of 600 MB": _compressed_member("gzip", ".gz"),
    "tar.zst: a member of 600 MB": _compressed_member("zstd", ".zst"),
    "tar: empty members": _empty_members,
    "tar: an extended header of 200 MB": _pax_header,
    "jsonl: 3.2 GB without a newline": _no_newline,
    "jsonl: a line of 1 GB": _long_line,
    "jsonl.zst: 60 million lines": _compressed_lines,
    "jsonl: tiny lines": _tiny_lines,
    "jsonl: blank lines": _blank_lines,
    "parquet: a long word in a dictionary": _plain(_long_word),
    "parquet: long words in lists": _plain(_long_words_in_lists),
    "parquet: long words in one list, of 2 GB": _plain(_long_words_in_one_list),
    "parquet: long words in two lists, of 16 MB": _plain(partial(_long_words_in_one_list, 800)),
    "parquet: a long prefix": _parquet(
        _long_prefix, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY", compression="zstd"
    ),
    "parquet: a constant": _plain(_constant),
    "parquet: a value of 200 MB": _plain(_one_value),
    "parquet: a list of 120 MB": _plain(_one_list),
    "parquet: 4,000 columns": _plain(_wide_schema),
    "12,000 shards": _many_shards,
}

"""Labels and features inside JSON, structs and lists; and what is said of records that lack them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corgi2.errors import SourceError
from corgi2.quality.measuring import measure
from corgi2.records.arena import Arena
from corgi2.records.shard import Piece
from tests.shards import PARQUET, MemoryShard, parquet_of, tar_of

ROWS: list[list[dict[str, Any]]] = [
    [{"cls": shard % 2, "meta": {"lang": "de" if shard % 3 else "en", "deep": {"x": shard * 1.0}}, "tags": ["a", "b"]}]
    * 10
    for shard in range(6)
]


def _write(folder: Path, format: str, rows: list[list[Any]], part: str = "json") -> Path:
    folder.mkdir(parents=True)
    for number, block in enumerate(rows):
        if format == "tar":
            members = [(f"{row:03d}.{part}", json.dumps(value).encode()) for row, value in enumerate(block)]
            data = tar_of(members)
        elif format == "jsonl":
            data = "".join(json.dumps(value) + "\n" for value in block).encode()
        elif format == "parquet":
            data = parquet_of(pa.Table.from_pylist(block))
        else:
            data = parquet_of(pa.table({"json": [json.dumps(value) for value in block]}))
        (folder / f"a-{number}.{'parquet' if format == 'text' else format}").write_bytes(data)
    return folder


PREFIX = {"tar": "json.", "jsonl": "", "parquet": "", "text": "json."}


@pytest.mark.parametrize("format", PREFIX)
def test_a_path_leads_into_json_structs_and_lists(format: str, tmp_path: Path) -> None:
    folder, prefix = _write(tmp_path / "in", format, ROWS), PREFIX[format]
    flat = _write(tmp_path / "flat", "jsonl", [[{"v": row["meta"]["lang"]} for row in block] for block in ROWS])
    assert measure(folder, [f"{prefix}meta.lang"]).h_D == pytest.approx(measure(flat, ["v"]).h_D)
    assert measure(folder, [f"{prefix}cls"]).h_D == pytest.approx(10)
    assert measure(folder, features=[f"{prefix}meta.deep.x"]).sigma2 == pytest.approx(np.var(np.arange(6)))
    with pytest.raises(SourceError, match="all sampled records have the same value"):
        measure(folder, [f"{prefix}tags.0"])


@pytest.mark.parametrize("format", PREFIX)
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tags", "'{0}tags' is a list, not a label; name an element of it: label='{0}tags.0'"),
        ("tags.x", "'{0}tags' is a list, and 'x' is no element of it; name one: '{0}tags.0'"),
        ("tags.7", "has no value of '{0}tags.7'; it has: {0}cls, {0}meta.lang, {0}meta.deep.x, {0}tags"),
        ("meta", "'{0}meta' is an object, not a label; name a key of it: '{0}meta.lang', '{0}meta.deep'"),
        ("meta.no", "has no value of '{0}meta.no'; it has: {0}cls, {0}meta.lang"),
        ("meta.lang.x", "'{0}meta.lang' is not JSON"),
        ("cls.x", "', which has no 'x' inside"),
        ("nothing", "has no value of '{0}nothing'; it has: {0}cls"),
    ],
)
def test_what_is_no_label_is_said_in_one_line(format: str, path: str, words: str, tmp_path: Path) -> None:
    folder, prefix = _write(tmp_path / "in", format, ROWS), PREFIX[format]
    with pytest.raises(SourceError) as caught:
        measure(folder, [prefix + path])
    assert words.format(prefix) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "a-" in str(caught.value)
    assert ": record 0" in str(caught.value)


@pytest.mark.parametrize("format", PREFIX)
@pytest.mark.parametrize("value", [None, "missing"])
def test_the_record_that_lacks_a_label_is_named(format: str, value: str | None, tmp_path: Path) -> None:
    rows = [[{"meta": {"lang": "de", "n": row}} for row in range(10)] for _ in range(4)]
    rows[2][7] = {"meta": {"lang": None, "n": 7}} if value is None else {"meta": {"n": 7}}
    folder = _write(tmp_path / "in", format, rows)
    with pytest.raises(SourceError, match=r"a-2\.\w+: record 7(:| has no value of) '(json\.)?meta\.lang'(;| is null)"):
        measure(folder, [f"{PREFIX[format]}meta.lang"])


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.bool_()])
def test_a_null_is_no_label(kind: pa.DataType, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        values = pa.array([1, 0, 1, None], pa.int64()).cast(kind)
        data = parquet_of(pa.table({"v": values, "id": range(4)}), row_group_size=2)
        (tmp_path / "in" / f"a-{number}.parquet").write_bytes(data)
    with pytest.raises(SourceError, match=r"a-\d\.parquet: record 3: 'v' is null there; measure by another"):
        measure(tmp_path / "in", ["v"])


def test_a_part_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        members = [(f"{row}.json", b'{"a": 1}' if row < 3 else b"{a: 1}") for row in range(4)]
        (tmp_path / "in" / f"a-{number}.tar").write_bytes(tar_of(members))
    with pytest.raises(SourceError, match=r"a-\d.tar: record 3: 'json' is not JSON \(.*\): b'\{a: 1\}'"):
        measure(tmp_path / "in", ["json.a"])


@pytest.mark.parametrize("format", ["tar", "jsonl", "parquet"])
def test_a_name_with_a_dot_wins_over_a_path(format: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        inside = {"b": "same"}
        if format == "tar":
            data = tar_of([(f"{row}.a{end}", body) for row in range(5) for end, body in _both(number, inside)])
        elif format == "jsonl":
            data = "".join(json.dumps({"a": inside, "a.b": number}) + "\n" for _ in range(5)).encode()
        else:
            data = parquet_of(pa.Table.from_pylist([{"a": inside, "a.b": number}] * 5))
        (tmp_path / "in" / f"s-{number}.{format}").write_bytes(data)
    found = measure(tmp_path / "in", ["a.b"])
    assert found.classes == 4
    assert found.h_D == pytest.approx(5)


def _both(number: int, inside: dict[str, str]) -> list[tuple[str, bytes]]:
    return [("", json.dumps(inside).encode()), (".b", str(number).encode())]


class _Watched(MemoryShard):
    """A shard that counts what is read of it."""

    read: int = 0

    def readinto(self, start: int, buffer: memoryview) -> None:
        super().readinto(start, buffer)
        object.__setattr__(self, "read", self.read + len(buffer))


@pytest.mark.parametrize("path", ["cls", "meta.lang", "meta.deep.x", "tags.0", "dict"])
def test_only_the_columns_of_a_label_are_read(path: str) -> None:
    rng = np.random.default_rng(0)
    count = 3000
    table = pa.table(
        {
            "image": [rng.bytes(300) for _ in range(count)],
            "cls": rng.integers(0, 9, count),
            "meta": [
                {"lang": "de", "deep": {"x": row, "raw": rng.bytes(100)}, "raw": rng.bytes(100)} for row in range(count)
            ],
            "tags": [["x", "y"]] * count,
            "dict": pa.array(["a", "b", "c"] * (count // 3)).dictionary_encode(),
        }
    )
    shard = _Watched(parquet_of(table, row_group_size=1000))
    (block, *_) = PARQUET.scan(shard, 0).blocks
    piece = Piece(shard, block.start, block.length, records=block.records, footprint=block.footprint)
    before = shard.read
    group = PARQUET.read([piece], Arena(10**7), decoding=True, only={path})
    assert shard.read - before < block.length / 10
    name = path.partition(".")[0]
    values = PARQUET.decoder(group, "x").columns(np.arange(1000), {path})
    assert list(values) == [name]
    whole = table[name].to_pylist()[:1000]
    if path == "meta.lang":
        assert values["meta"] == [{"lang": row["lang"]} for row in whole]
    elif path == "meta.deep.x":
        assert values["meta"] == [{"deep": {"x": row["deep"]["x"]}} for row in whole]
    else:
        assert list(values[name]) == whole

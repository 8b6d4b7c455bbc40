"""``verify`` says yes for the same records in any order, and denies everything else in the right words."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgi2.errors import Corgi2Error
from corgi2.offline.run import shuffle
from corgi2.order.permutations import permutation
from corgi2.proof.comparison import verify
from tests.shards import compressed, parquet_of, tar_of
from tests.sources import write_source

SUFFIXES = [".tar", ".tar.gz", ".parquet", ".jsonl", ".jsonl.zst"]


def _write(folder: Path, suffix: str, records: list[tuple[int, str]], shards: int) -> None:
    """Records (number, text), dealt to shards."""
    folder.mkdir()
    for shard in range(shards):
        part = records[shard::shards]
        if ".tar" in suffix:
            data = compressed(tar_of([(f"{n:05d}.txt", text.encode()) for n, text in part]), suffix)
        elif suffix == ".parquet":
            columns = {"n": [n for n, _ in part], "t": [[text, None] for _, text in part]}
            data = parquet_of(pa.table(columns), row_group_size=7)
        else:
            data = compressed("\n".join(json.dumps({"n": n, "t": text}) for n, text in part).encode(), suffix)
        (folder / f"s-{shard}{suffix}").write_bytes(data)


RECORDS = [(n, f"text {n}" * (n % 50)) for n in range(200)]
CHANGES = {
    "a missing record": (RECORDS[:70] + RECORDS[71:], 1, 0),
    "a repeated record": ([*RECORDS, (500, "x"), (500, "x")][:-1], 0, 1),
    "a changed record": ([*RECORDS[:70], (70, "text 7!"), *RECORDS[71:]], 1, 1),
    "two missing records": (RECORDS[2:], 2, 0),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_records_in_another_order_and_other_shards_are_the_same(suffix: str, tmp_path: Path) -> None:
    _write(tmp_path / "a", suffix, RECORDS, 3)
    _write(tmp_path / "b", suffix, [RECORDS[n] for n in permutation(len(RECORDS), (1,))], 4)
    verdict = verify(tmp_path / "a", tmp_path / "b")
    assert verdict.same
    assert verdict.as_text() == "the same 200 records, each equally often, in whatever order"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("change", CHANGES)
def test_every_difference_is_denied_with_its_number_and_an_example(suffix: str, change: str, tmp_path: Path) -> None:
    records, missing, extra = CHANGES[change]
    _write(tmp_path / "a", suffix, RECORDS, 3)
    _write(tmp_path / "b", suffix, records, 3)
    verdict = verify(tmp_path / "a", tmp_path / "b")
    assert not verdict.same
    assert (verdict.missing, verdict.extra) == (missing, extra)
    assert len(verdict.examples) == missing + extra
    assert all(("a/s-" if line.startswith("missing") else "b/s-") in line for line in verdict.examples)


def test_a_record_twice_in_place_of_another_is_denied(tmp_path: Path) -> None:
    lines = [json.dumps({"n": n}) for n in range(10)]
    for name, text in (("a", lines), ("b", [*lines[:9], lines[0]])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jsonl").write_text("\n".join(text))
    verdict = verify(tmp_path / "a", tmp_path / "b")
    assert (verdict.missing, verdict.extra) == (1, 1)
    assert verdict.examples[0] == f"missing: record 9 of {tmp_path}/a/x.jsonl"


def test_parts_of_the_range_of_hashes_give_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "a", ".jsonl", RECORDS, 3)
    _write(tmp_path / "b", ".jsonl", RECORDS[5:], 2)
    monkeypatch.setattr("corgi2.proof.comparison._HASH_BYTES", 16_000_000 // 9)
    verdict = verify(tmp_path / "a", tmp_path / "b", buffer="16MB")
    assert (verdict.missing, verdict.extra) == (5, 0)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    _write(tmp_path / "a", ".jsonl", RECORDS, 1)
    _write(tmp_path / "b", ".tar", RECORDS, 1)
    with pytest.raises(ValueError, match="no common records"):
        verify(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ({"b": pa.array([1, 2], pa.int32()), "a": pa.array(["x", "y"])}, "another order: 'a' comes before 'b'"),
        ({"a": pa.array([1, 2], pa.int64()), "b": pa.array(["x", "y"])}, "'a: int32' against 'a: int64'"),
        ({"a": pa.array([1, 2], pa.int32()), "b": pa.array([b"x", b"y"])}, "'b: string' against 'b: binary'"),
    ],
    ids=["names", "a number's type", "a text's type"],
)
def test_equal_values_in_other_columns_are_denied(
    columns: dict[str, pa.Array], difference: str, tmp_path: Path
) -> None:
    first = {"a": pa.array([1, 2], pa.int32()), "b": pa.array(["x", "y"])}
    for name, table in (("one", first), ("two", columns)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.parquet").write_bytes(parquet_of(pa.table(table)))
    verdict = verify(tmp_path / "one", tmp_path / "two")
    assert not verdict.same
    assert re.search(f"one has other columns than .*two: .*({difference})", verdict.as_text())


FIELD = pa.field("a", pa.int64(), metadata={"unit": "mm"})
NESTED = pa.field("s", pa.struct([FIELD]))
SCHEMA = pa.schema([FIELD, NESTED], {"huggingface": "{}", "mine": "1"})
METADATA = {
    "a value": (SCHEMA.with_metadata({"huggingface": "{}", "mine": "2"}), "the metadata 'mine' differs"),
    "a key more": (SCHEMA.with_metadata({"huggingface": "{}", "mine": "1", "x": ""}), "the metadata 'x' differs"),
    "a key less": (SCHEMA.with_metadata({"huggingface": "{}"}), "the metadata 'mine' differs"),
    "all of it": (SCHEMA.remove_metadata(), "the metadata 'huggingface' differs"),
    "a field's": (SCHEMA.set(0, FIELD.with_metadata({"unit": "m"})), "'unit' of field 'a' differs"),
    "a field's, lost": (SCHEMA.set(0, FIELD.remove_metadata()), "'unit' of field 'a' differs"),
    "a nested field's": (
        SCHEMA.set(1, pa.field("s", pa.struct([FIELD.remove_metadata()]))),
        "'unit' of field 's.a' differs",
    ),
}


def _write_rows(folder: Path, schema: pa.Schema, shards: int = 1, **options: Any) -> None:
    folder.mkdir()
    rows = [{"a": n, "s": {"a": -n}} for n in range(20)]
    for shard in range(shards):
        table = pa.Table.from_pylist(rows[shard::shards], schema)
        (folder / f"s-{shard}.parquet").write_bytes(parquet_of(table, **options))


@pytest.mark.parametrize("change", METADATA)
def test_metadata_of_files_and_fields_is_compared_in_every_shard(change: str, tmp_path: Path) -> None:
    schema, words = METADATA[change]
    _write_rows(tmp_path / "a", SCHEMA, 2)
    _write_rows(tmp_path / "b", SCHEMA, 3)
    assert verify(tmp_path / "a", tmp_path / "b").same
    table = pq.read_table(tmp_path / "b" / "s-2.parquet").cast(schema.remove_metadata())
    (tmp_path / "b" / "s-2.parquet").write_bytes(parquet_of(table.replace_schema_metadata(None).cast(schema)))
    verdict = verify(tmp_path / "a", tmp_path / "b")
    assert not verdict.same
    assert (verdict.missing, verdict.extra) == (0, 0)
    assert words in verdict.as_text()
    assert "b/s-2.parquet" in verdict.as_text()


def test_what_is_stored_otherwise_is_said_and_is_the_same(tmp_path: Path) -> None:
    _write_rows(tmp_path / "a", SCHEMA)
    _write_rows(tmp_path / "b", SCHEMA, compression="zstd", write_statistics=False)
    verdict = verify(tmp_path / "a", tmp_path / "b")
    assert verdict.same
    assert "the codec of 'a' differs" in verdict.as_text()
    assert "whether 'a' has statistics differs" in verdict.as_text()


@pytest.mark.parametrize("passes", [1, 2])
def test_a_shuffle_keeps_all_that_is_compared(passes: int, tmp_path: Path) -> None:
    _write_rows(tmp_path / "a", SCHEMA, 4, compression="zstd", write_page_index=True)
    shuffle(tmp_path / "a", tmp_path / "b", passes=passes)
    assert verify(tmp_path / "a", tmp_path / "b").as_text() == (
        "the same 20 records, each equally often, in whatever order"
    )


@pytest.mark.parametrize(("suffix", "loose"), [(".jsonl", b"\n"), (".jsonl.zst", b" \n")])
def test_what_belongs_to_no_record_is_compared(suffix: str, loose: bytes, tmp_path: Path) -> None:
    for name, front in (("a", b""), ("b", loose), ("c", loose)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"x{suffix}").write_bytes(compressed(front + b'{"a":1}\n', suffix))
    assert verify(tmp_path / "b", tmp_path / "c").same
    verdict = verify(tmp_path / "a", tmp_path / "b")
    assert not verdict.same
    assert "belongs to none differs: 0 items in" in verdict.as_text()


@pytest.mark.parametrize("suffix", [".tar", ".parquet"])
def test_damage_that_a_shuffle_left_out_is_answered_with_the_proof_of_the_rest(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [20] * 6)
    (tmp_path / "in" / f"data-0003{suffix}").write_bytes(b"junk" * 300)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=3, skip_bad=True)
    with pytest.raises(Corgi2Error, match=f"left out what was damaged: corgi2 verify {tmp_path}/out proves the rest"):
        verify(tmp_path / "in", tmp_path / "out")


def test_options_of_a_store_that_is_not_named_are_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 2)
    for use in (verify, lambda src, **options: shuffle(src, in_place=True, **options)):
        with pytest.raises(ValueError, match="dst_options= is for a second store"):
            use(tmp_path / "in", dst_options={"endpoint": "http://127.0.0.1:1"})

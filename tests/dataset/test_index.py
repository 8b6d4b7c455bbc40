"""The index: what it says is true, it notices changes, and it is quick to load."""

import io
import itertools
import json
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2.dataset.estimate import forecast
from corgi2.dataset.index_file import cache_store, load_index, open_index, save_index
from corgi2.dataset.index_tables import Index, blocks_table, make_index, matches, merge
from corgi2.dataset.scan import index_source, survey_source
from corgi2.dataset.schemas import schema_difference
from corgi2.dataset.source import find_source
from corgi2.errors import DamageError, MissingShardError, SourceError
from corgi2.formats.columnar.schema import schema_text
from corgi2.records.arena import Arena
from corgi2.records.checksum import Checksum
from corgi2.records.shard import Block
from corgi2.stores.local import LocalStore
from corgi2.stores.opening import open_store
from tests.conftest import S3
from tests.patching import patch_everywhere
from tests.shards import compressed, parquet_of, tar_of
from tests.sources import write_source


def _write_tars(folder: Path, shards: int = 3, suffix: str = ".tar") -> None:
    folder.mkdir(exist_ok=True)
    for shard in range(shards):
        members = [(f"{n:03d}.bin", bytes([shard]) * 700) for n in range(40 + shard)]
        (folder / f"a-{shard}{suffix}").write_bytes(compressed(tar_of(members), suffix))


def _write_jsonl(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for shard in range(3):
        lines = [json.dumps({"n": n}) for n in range(50 + shard)]
        (folder / f"a-{shard}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("write", [_write_tars, _write_jsonl])
def test_records_bytes_footprints_and_checksums_are_true(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    source = find_source(tmp_path)
    index = index_source(source, 5_000)
    rows = index.blocks.to_pylist()
    for row, piece in zip(rows, index.pieces(source, range(len(rows))), strict=True):
        data = bytearray(piece.length)
        piece.file.readinto(piece.start, memoryview(data))
        checksum = Checksum()
        checksum.update(data)
        group = source.format.read([piece], Arena(1 << 20))
        assert (row["records"], row["checksum"]) == (group.records, checksum.digest())
        assert abs(row["footprint"] - group.footprint) <= 64
        assert row["exact"]
    assert index.records == sum(row["records"] for row in rows)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
def test_a_compressed_shard_is_one_block_with_its_decompressed_footprint(tmp_path: Path, suffix: str) -> None:
    _write_tars(tmp_path, suffix=suffix)
    source = find_source(tmp_path)
    index = index_source(source, 5_000)
    assert index.column("length").tolist() == [entry.size for entry in source.entries]
    assert index.column("records").tolist() == [40, 41, 42]
    assert (index.column("footprint") > 40 * 1200).all()


def test_a_saved_index_loads_as_it_was(tmp_path: Path) -> None:
    _write_tars(tmp_path)
    source = find_source(tmp_path)
    index = index_source(source, 5_000)
    save_index(source.store, index)
    loaded = open_index(find_source(tmp_path))
    assert loaded is not None
    assert loaded.blocks.equals(index.blocks)
    assert loaded.shards.equals(index.shards)
    assert (loaded.suffix, loaded.block_bytes) == (".tar", 5_000)


def test_a_changed_shard_makes_the_index_stale_and_only_it_is_read_again(tmp_path: Path) -> None:
    _write_tars(tmp_path)
    old = index_source(find_source(tmp_path))
    (tmp_path / "a-1.tar").write_bytes(tar_of([("x.bin", b"new")]))
    source = find_source(tmp_path)
    assert not matches(old, source)
    new = index_source(source, known=old)
    assert source.store.requests.reads == 1
    assert new.column("records").tolist() == [40, 1, 42]
    assert new.blocks.equals(index_source(source).blocks)


def test_the_same_size_at_another_time_is_a_change(tmp_path: Path) -> None:
    _write_tars(tmp_path)
    old = index_source(find_source(tmp_path))
    os.utime(tmp_path / "a-1.tar", ns=(1, 1))
    assert not matches(old, find_source(tmp_path))


def test_removed_and_added_shards_are_noticed(tmp_path: Path) -> None:
    _write_tars(tmp_path, shards=4)
    old = index_source(find_source(tmp_path))
    (tmp_path / "a-0.tar").unlink()
    new = index_source(find_source(tmp_path), known=old)
    assert new.shards.column("path").to_pylist() == ["a-1.tar", "a-2.tar", "a-3.tar"]
    assert new.column("records").tolist() == [41, 42, 43]
    assert new.column("shard").tolist() == [0, 1, 2]


def test_the_index_may_lie_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _write_tars(tmp_path / "data")
    source = find_source(tmp_path / "data")
    save_index(cache_store(source), index_source(source))
    assert not (tmp_path / "data" / ".corgi2").exists()
    assert open_index(source) is not None


def test_damaged_shards_are_all_named_and_the_others_are_indexed(tmp_path: Path) -> None:
    _write_tars(tmp_path, shards=4)
    (tmp_path / "a-1.tar").write_bytes((tmp_path / "a-1.tar").read_bytes()[:3000])
    (tmp_path / "a-3.tar").write_bytes(b"")
    survey = survey_source(find_source(tmp_path))
    assert [Path(error.shard).name for error in survey.damage] == ["a-1.tar", "a-3.tar"]
    assert survey.index.column("records").tolist() == [40, 42]
    with pytest.raises(DamageError, match=r"a-1\.tar.*\n.*a-3\.tar"):
        index_source(find_source(tmp_path))


def test_a_shard_with_another_schema_is_named_with_the_difference(tmp_path: Path) -> None:
    for shard in range(3):
        type_ = pa.int32() if shard == 1 else pa.int64()
        pq.write_table(pa.table({"a": pa.array([1], type_), "b": ["x"]}), tmp_path / f"{shard}.parquet")
    (error,) = survey_source(find_source(tmp_path)).damage
    assert Path(error.shard).name == "1.parquet"
    assert "'a: int32' against 'a: int64'" in error.problem


TYPES = {"int8": pa.int8(), "int64": pa.int64(), "string": pa.string()}
COLUMNS = st.dictionaries(
    st.sampled_from(
        ["a", "b", "a.b", "x: y", 'q"'],
    ),
    st.sampled_from([*TYPES]),
    max_size=5,
)


@given(common=COLUMNS, other=COLUMNS, random=st.randoms(use_true_random=False))
def test_what_differs_between_two_schemas_is_said(common: dict[str, str], other: dict[str, str], random: Any) -> None:
    order = list(other)
    random.shuffle(order)
    ours, theirs = (
        pa.schema([(name, TYPES[columns[name]]) for name in names])
        for columns, names in ((other, order), (common, list(common)))
    )
    shown = {name: schema_text(pa.schema([(name, pa.int8())])).removesuffix(": int8") for name in [*common, *other]}
    expected = [f"'{shown[name]}: {common[name]}' is missing" for name in common if name not in other]
    expected += [f"'{shown[name]}: {other[name]}' is extra" for name in order if name not in common]
    shared, there = [name for name in order if name in common], [name for name in common if name in other]
    for name in shared:
        if other[name] != common[name]:
            expected.append(f"'{shown[name]}: {other[name]}' against '{shown[name]}: {common[name]}'")
    if shared != there:
        first, second = next(pair for pair in zip(shared, there, strict=True) if pair[0] != pair[1])
        expected.append(f"columns in another order: '{shown[first]}' comes before '{shown[second]}'")
    said = schema_difference(schema_text(ours), schema_text(theirs))
    more = f", and {len(expected) - 4} more" if len(expected) > 4 else ""
    assert said == ", ".join(expected[:4]) + more


def test_columns_of_one_name_are_counted() -> None:
    one, two = (pa.schema([("a", pa.int8())] * count) for count in (1, 2))
    assert schema_difference(schema_text(one), schema_text(two)) == "'a: int8' is missing"
    assert schema_difference(schema_text(two), schema_text(one)) == "'a: int8' is extra"


def test_a_struct_that_may_be_missing_is_another(tmp_path: Path) -> None:
    for shard in range(3):
        field = pa.field("s", pa.struct([("x", pa.int64())]), nullable=shard != 1)
        pq.write_table(pa.table({"s": [{"x": 1}]}, schema=pa.schema([field])), tmp_path / f"{shard}.parquet")
    (error,) = survey_source(find_source(tmp_path)).damage
    assert Path(error.shard).name == "1.parquet"
    assert "another schema than 0.parquet: 's: struct not null' against 's: struct';" in error.problem


def test_a_damaged_index_is_refused_with_a_way_out(tmp_path: Path) -> None:
    _write_tars(tmp_path)
    source = find_source(tmp_path)
    save_index(source.store, index_source(source))
    path = tmp_path / ".corgi2" / "index"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SourceError, match="index: is damaged: its checksum is wrong; delete it, and run corgi2 index"):
        open_index(source)


def test_estimated_footprints_are_corrected_by_a_sample(tmp_path: Path) -> None:
    """Dictionary-encoded strings can be many times larger decoded than on disk."""
    for shard in range(4):
        table = pa.table({"s": ["a long word that is repeated again and again" * 5] * 20_000})
        (tmp_path / f"{shard}.parquet").write_bytes(parquet_of(table, row_group_size=5_000))
    source = find_source(tmp_path)
    index = index_source(source)
    assert not any(index.blocks.column("exact").to_pylist())
    actual = [source.format.read([piece], Arena(1 << 24)).footprint for piece in index.pieces(source, range(16))]
    calibrated = forecast(source, index, source.format.profile(source.shard(0)), 1 << 30).index.column("footprint")
    assert np.abs(calibrated / actual - 1).max() < 0.02
    assert index.column("footprint").sum() < sum(actual) / 2


def test_growth_is_predicted_from_all_of_a_row_group(tmp_path: Path) -> None:
    """Texts sorted by length: those at the front are short."""
    rng = np.random.default_rng(0)
    for shard in range(2):
        lengths = np.sort(rng.integers(1_000, 60_000, 1_500))
        table = pa.table({"t": [rng.bytes(length) for length in lengths.tolist()]})
        (tmp_path / f"{shard}.parquet").write_bytes(parquet_of(table, use_dictionary=False))
    source = find_source(tmp_path)
    index = index_source(source)
    assert index.column("footprint").min() > 40_000_000
    for most in (1, 2):
        assert (
            abs(forecast(source, index, source.format.profile(source.shard(0)), 1 << 30, most=most).growth - 1) < 0.05
        )


def test_totals_beyond_32_bits_are_counted() -> None:
    blocks = [(0, Block(n << 33, 1 << 33, 1 << 31, 1 << 40)) for n in range(4)]
    index = Index(".jsonl", 1, pa.table({"size": [1 << 50]}), blocks_table(blocks))
    assert index.records == 1 << 33
    assert index.column("start").tolist() == [n << 33 for n in range(4)]


def test_a_million_blocks_are_loaded_as_columns(tmp_path: Path) -> None:
    count = 1_000_000
    numbers = pa.array(np.arange(count))
    shards = pa.table(
        [[f"s{n:07d}.tar" for n in range(1000)], [1] * 1000, ["e"] * 1000, [""] * 1000, [b""] * 1000],
        schema=make_index(".tar", 1, []).shards.schema,
    )
    empty = blocks_table([])
    lineage = pa.array([[1, 2]]).cast(pa.list_(pa.int32())).take(pa.array(np.zeros(count, np.int64)))
    columns = [
        (numbers if pa.types.is_int64(field.type) else None) or numbers.cast(pa.int32())
        if pa.types.is_integer(field.type)
        else lineage
        if pa.types.is_list(field.type)
        else pa.array(np.ones(count, bool))
        if pa.types.is_boolean(field.type)
        else pa.array([bytes(16)] * count)
        for field in empty.schema
    ]
    store = open_store(str(tmp_path))
    save_index(store, Index(".tar", 64, shards, pa.table(columns, schema=empty.schema)))
    started = time.process_time()
    loaded = load_index(store)
    assert loaded is not None
    assert loaded.blocks.num_rows == count
    assert time.process_time() - started < 5  # rows as Python objects would take a minute
    assert loaded.column("start")[-1] == count - 1


def test_an_index_is_taken_for_data_by_no_other_reader(tmp_path: Path) -> None:
    for shard in range(2):
        pq.write_table(pa.table({"a": range(10)}), tmp_path / f"{shard}.parquet")
    source = find_source(tmp_path)
    save_index(source.store, index_source(source))
    assert pq.read_table(tmp_path).num_rows == 20
    assert len(find_source(tmp_path).entries) == 2
    assert find_source(tmp_path).others == ()


def test_tars_larger_than_one_request_are_indexed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that cut headers, bodies and records anywhere change nothing."""
    _write_tars(tmp_path)
    expected = index_source(find_source(tmp_path), 5_000)
    for window in (512, 1024, 1536, 4096, 10_240):
        patch_everywhere(monkeypatch, "corgi2.formats.framed", READ_BYTES=window)
        assert index_source(find_source(tmp_path), 5_000).blocks.equals(expected.blocks)


def test_json_lines_larger_than_one_request_are_indexed_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_jsonl(tmp_path)
    expected = index_source(find_source(tmp_path), 100)
    for window in (1, 7, 64, 100):
        patch_everywhere(monkeypatch, "corgi2.formats.framed", READ_BYTES=window)
        assert index_source(find_source(tmp_path), 100).blocks.equals(expected.blocks)


@pytest.mark.slow
def test_a_block_over_two_gigabytes_works(tmp_path: Path) -> None:
    """A member of 2.2 GB, a hole on the disk, between two small ones."""
    size = 2_200_000_000
    path = tmp_path / "big.tar"
    with path.open("wb") as file:
        for name, length in (("a.bin", 10), ("b.bin", size), ("c.bin", 10)):
            info = tarfile.TarInfo(name)
            info.size = length
            file.write(info.tobuf())
            file.seek(-(-length // 512) * 512, io.SEEK_CUR)
        file.truncate(file.tell() + 1024)
    source = find_source(tmp_path)
    index = index_source(source, buffer_bytes=4_000_000_000)
    assert index.column("records").tolist() == [1, 1, 1]
    whole = source.format.read(index.pieces(source, range(3)), Arena(path.stat().st_size))
    assert whole.records == 3
    assert whole.table.column(0).nbytes > 2**31


def test_an_index_on_s3_is_that_of_the_same_files_on_a_disk_and_reads_each_shard_once(s3: S3, tmp_path: Path) -> None:
    _write_tars(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        s3.store().publish(path.name, [path.read_bytes()])
    source = find_source(s3.url, s3.options)
    s3.proxy.seen.clear()
    index = index_source(source, 5_000)
    assert s3.proxy.requests().reads == source.store.requests.reads == 3
    assert index.blocks.equals(index_source(find_source(tmp_path), 5_000).blocks)
    save_index(source.store, index)
    assert open_index(find_source(s3.url, s3.options)) is not None
    remote, local = (
        site.format.read(index.pieces(site, range(index.blocks.num_rows)), Arena(1 << 20))
        for site in (source, find_source(tmp_path))
    )
    assert remote.table.equals(local.table)


def test_indexing_another_part_of_a_folder_keeps_what_is_known(tmp_path: Path) -> None:
    _write_tars(tmp_path, shards=4)
    first, second = (find_source(f"{tmp_path}/a-[{digits}].tar") for digits in ("02", "13"))
    save_index(first.store, index_source(first, 5_000))
    save_index(first.store, merge(load_index(first.store), index_source(second, 5_000)))
    whole = index_source(find_source(tmp_path), 5_000)
    for source in (first, second, find_source(tmp_path)):
        found = open_index(source)
        assert found is not None
        assert found.blocks.equals(index_source(source, 5_000).blocks)
    kept = load_index(first.store)
    assert kept is not None
    assert kept.shards.equals(whole.shards)


def test_a_scan_that_is_stopped_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_tars(tmp_path, shards=60)
    units = sum(path.stat().st_size for path in tmp_path.glob("*.tar")) // 512
    patch_everywhere(monkeypatch, "corgi2.formats.framed", READ_BYTES=512)
    read = LocalStore.readinto
    calls = itertools.count()

    def interrupted(*arguments: Any) -> None:
        if next(calls) == 20:
            raise KeyboardInterrupt
        read(*arguments)

    monkeypatch.setattr(LocalStore, "readinto", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index_source(find_source(tmp_path))
    assert next(calls) < units // 4  # all of it takes more than twice as many


def test_what_a_shuffle_wrote_is_read_whole_or_as_what_was_named_or_accepted_as_it_is(tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    write_source(tmp_path / "in", ".jsonl", [20] * 6)
    corgi2.shuffle(tmp_path / "in", mixed, buffer_blocks=3)
    lost = mixed / "data-000003.jsonl"
    lost.unlink()
    for read in (
        corgi2.Loader,
        lambda src: corgi2.shuffle(src, tmp_path / "again"),
        lambda src: corgi2.shuffle(src, in_place=True),
    ):
        with pytest.raises(MissingShardError) as caught:
            read(mixed)
        assert str(caught.value) == (
            f"{lost}: is gone, and the index of the shuffle there names it; restore it, or run corgi2 index {mixed} to "
            "accept what is there"
        )
    found = corgi2.inspect(mixed)
    assert ([error.shard for error in found.damage], found.indexed) == ([str(lost)], False)
    assert len(list(corgi2.Loader(f"{mixed}/data-00000[012].jsonl", buffer_blocks=2))) == 60
    corgi2.index(mixed)
    assert corgi2.inspect(mixed).damage == ()
    assert len(list(corgi2.Loader(mixed, buffer_blocks=2))) == 100


def test_shards_that_were_held_out_in_place_are_not_missed(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 6)
    corgi2.index(tmp_path / "in")
    held: dict[str, Any] = {"holdout": 0.2, "holdout_by": "shard", "holdout_to": tmp_path / "val"}
    corgi2.shuffle(tmp_path / "in", in_place=True, buffer_blocks=3, **held)
    assert corgi2.inspect(tmp_path / "in").indexed

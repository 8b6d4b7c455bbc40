"""Parquet: every Arrow type, schema, metadata, codec and row-group size survive; damage is named."""

import datetime
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corgi2.errors import ShardError
from corgi2.formats.columnar.columns import holds_text, is_flat
from corgi2.formats.columnar.schema import schema_text, widened
from corgi2.formats.parquet import lists, repeats
from corgi2.formats.parquet.profile import Profile, form_of
from corgi2.offline.run import shuffle
from corgi2.order.permutations import permutation
from corgi2.proof.comparison import verify
from corgi2.records.arena import Arena
from corgi2.records.group import Group, gather
from corgi2.records.hashing import Digest
from corgi2.records.shard import Piece
from tests.columns import VALUES, column_of
from tests.shards import ARROW, PARQUET, MemoryShard, parquet_of, read_shards, records_of, rewritten, samples_of


@settings(max_examples=60)
@given(
    types=st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=6),
    rows=st.integers(1, 60),
    group=st.integers(1, 30),
    seed=st.integers(0, 10_000),
    shards=st.integers(1, 3),
)
def test_every_arrow_type_survives_mixing(
    types: list[pa.DataType], rows: int, group: int, seed: int, shards: int
) -> None:
    fields = [pa.field(f"c{n}", type_) for n, type_ in enumerate(types)]
    schema = pa.schema(fields, metadata={"huggingface": '{"info": 1}', "mine": "ü"})
    tables = [
        pa.table([column_of(type_, rows, seed + shard) for type_ in types], schema=schema) for shard in range(shards)
    ]
    sources = [parquet_of(table, row_group_size=group) for table in tables]
    mixed = read_shards(PARQUET, sources)
    order = permutation(mixed.records, (seed,))
    written = rewritten(PARQUET, mixed, order, sources[0])
    result = pq.read_table(pa.BufferReader(written))
    expected = pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in sources])
    assert result.schema.equals(widened(expected.schema), check_metadata=True)
    rows_before = expected.to_pylist()
    assert result.to_pylist() == [rows_before[row] for row in order]
    assert pq.read_schema(pa.BufferReader(written)).equals(
        widened(pq.read_schema(pa.BufferReader(sources[0]))), check_metadata=True
    )


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"])
def test_codec_and_dictionary_columns_are_kept_and_a_block_is_a_row_group(codec: str) -> None:
    table = pa.table({"a": range(1000), "b": ["x", "y"] * 500})
    source = parquet_of(table, compression=codec, row_group_size=300, use_dictionary=["b"])
    group = read_shards(PARQUET, [source])
    blocks = [gather(group, order) for order in np.split(permutation(1000, (1,)), [400, 700])]
    written = b"".join(map(bytes, PARQUET.write(blocks, PARQUET.profile(MemoryShard(source)))))
    before, after = (pq.read_metadata(pa.BufferReader(data)) for data in (source, written))
    assert [after.row_group(n).num_rows for n in range(after.num_row_groups)] == [400, 300, 300]
    for number in range(2):
        old, new = before.row_group(0).column(number), after.row_group(0).column(number)
        assert (old.compression, old.has_dictionary_page) == (new.compression, new.has_dictionary_page)


def test_writers_of_wide_values_look_often_enough_to_keep_pages_at_a_megabyte() -> None:
    rng = np.random.default_rng(0)
    narrow, wide = (parquet_of(pa.table({"a": [rng.bytes(size) for _ in range(60)]})) for size in (1000, 100_000))
    profiles = [Profile.decode(PARQUET.profile(MemoryShard(data))) for data in (narrow, wide)]
    assert [profile.options.get("write_batch_size") for profile in profiles] == [None, 10]
    written = rewritten(PARQUET, read_shards(PARQUET, [wide]), range(60), wide)
    assert records_of(read_shards(PARQUET, [written])) == records_of(read_shards(PARQUET, [wide]))


def test_a_dictionary_that_saved_nothing_is_not_tried_again() -> None:
    rows = 100_000
    words = {"word": ["cat", "dog"] * (rows // 2), "long": [f"a text of some length {n % 100}" for n in range(rows)]}
    rng = np.random.default_rng(0)
    lost = {"text": [rng.bytes(15).hex() for _ in range(rows)], "number": rng.random(rows)}
    source = parquet_of(pa.table(words | lost))
    assert all(_dictionaries(source).values())
    written = rewritten(PARQUET, read_shards(PARQUET, [source]), range(rows), source)
    assert _dictionaries(written) == dict.fromkeys(words, True) | dict.fromkeys(lost, False)
    assert len(written) < len(source)


def _dictionaries(data: bytes) -> dict[str, bool]:
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: column.has_dictionary_page for column in columns}


@pytest.mark.parametrize(
    "options",
    [
        {"use_deprecated_int96_timestamps": True},
        {"use_compliant_nested_type": False},
        {"version": "1.0"},
        {"version": "2.4"},
        {"store_schema": False},
        {"store_decimal_as_integer": True},
    ],
    ids=str,
)
def test_the_parquet_schema_is_kept_whatever_wrote_it(options: dict[str, Any]) -> None:
    types = [pa.timestamp("ns"), pa.list_(pa.int32()), pa.uint32(), pa.decimal128(5, 1), pa.string()]
    table = pa.table([column_of(type_, 20, 1) for type_ in types], [f"c{n}" for n in range(len(types))])
    source = parquet_of(table, **options)
    written = rewritten(PARQUET, read_shards(PARQUET, [source]), range(20), source)
    before, after = (pq.ParquetFile(pa.BufferReader(data)) for data in (source, written))
    assert after.schema.equals(before.schema)
    assert after.read().equals(before.read())


def test_int96_timestamps_out_of_arrows_range_are_refused_not_altered() -> None:
    far = pa.table({"t": pa.array([datetime.datetime(9999, 12, 31)], pa.timestamp("us"))})
    source = parquet_of(far, use_deprecated_int96_timestamps=True)
    with pytest.raises(ShardError, match="INT96"):
        read_shards(PARQUET, [source])


def test_scan_reads_footers_only_and_counts_rows() -> None:
    source = parquet_of(pa.table({"a": range(100_000)}), row_group_size=30_000)
    shard = MemoryShard(source)
    read: list[int] = []

    class Counting(MemoryShard):
        def readinto(self, start: int, buffer: memoryview) -> None:
            read.append(len(buffer))
            super().readinto(start, buffer)

    blocks = PARQUET.scan(Counting(source), 1).blocks
    assert [block.records for block in blocks] == [30_000, 30_000, 30_000, 10_000]
    assert sum(read) <= 65_536 < shard.size
    assert len(read) == 1


def test_rows_become_dicts_by_column() -> None:
    source = parquet_of(pa.table({"a": [1, 2], "b": [["x"], None]}))
    assert samples_of(PARQUET, source) == [{"a": 1, "b": ["x"]}, {"a": 2, "b": None}]


def test_shards_with_different_dictionaries_mix() -> None:
    sources = [parquet_of(pa.table({"d": pa.array(words).dictionary_encode()})) for words in (["a", "b"], ["c", "a"])]
    assert [row["d"] for row in records_of(read_shards(PARQUET, sources), [3, 0, 2, 1])] == ["a", "a", "c", "b"]


DICTIONARY = pa.dictionary(pa.int8(), pa.string())

HOLDERS: dict[str, Callable[[str | None], Any]] = {
    "plain": lambda word: word,
    "struct": lambda word: {"x": word},
    "list": lambda word: [word, "common"],
    "deep": lambda word: [{"x": [word], "n": 1}],
}

HELD: dict[str, pa.DataType] = {
    "plain": DICTIONARY,
    "struct": pa.struct([("x", DICTIONARY)]),
    "list": pa.list_(DICTIONARY),
    "deep": pa.large_list(pa.struct([("x", pa.list_(DICTIONARY)), ("n", pa.int8())])),
}


def _categories(held: str, words: list[str | None]) -> pa.Table:
    """By the indices that pandas would take for so few values: eight bits."""
    column = pa.array([HOLDERS[held](word) for word in words], HELD[held])
    return pa.table({"c": column, "n": range(len(words))})


@pytest.mark.parametrize("held", HOLDERS)
@settings(max_examples=15)
@given(
    shards=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 110)), min_size=1, max_size=5),
    row_group=st.sampled_from([20, 1000]),
    seed=st.integers(0, 99),
)
def test_dictionaries_with_more_values_in_all_than_their_indices_number_mix(
    held: str, shards: list[tuple[int, int]], row_group: int, seed: int
) -> None:
    tables = [
        _categories(held, [None if number % 50 == 49 else f"word {first + number}" for number in range(count)])
        for first, count in shards
    ]
    sources = [parquet_of(table, row_group_size=row_group) for table in tables]
    group = read_shards(PARQUET, sources)
    order = permutation(group.records, (seed,))
    written = rewritten(PARQUET, group, order, sources[0])
    rows = [row for table in tables for row in table.to_pylist()]
    assert pq.read_table(pa.BufferReader(written)).to_pylist() == [rows[number] for number in order]
    assert samples_of(PARQUET, written) == [rows[number] for number in order]
    scans = {PARQUET.scan(MemoryShard(data), 1).schema for data in [*sources, written]}
    assert len(scans) == 1
    digests = [
        sum((PARQUET.digest(table, 7) for data in shards for table in PARQUET.stream(MemoryShard(data))), Digest())
        for shards in (sources, [written])
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("passes", [1, 2])
def test_categories_of_pandas_survive_a_shuffle(in_place: bool, passes: int, tmp_path: Path) -> None:
    """Which counts with 8 bits up to 127 of them, and with 16 bits from then on, in every shard by itself."""
    pandas = pytest.importorskip("pandas")
    source, target = tmp_path / "in", tmp_path / ("in" if in_place else "out")
    source.mkdir()
    before = []
    for shard, (first, count) in enumerate([(0, 100), (80, 120), (180, 90), (0, 300), (7, 1)]):
        words = [f"word {number}" for number in range(first, first + count)] * 2
        frame = pandas.DataFrame({"c": pandas.Categorical(words), "n": range(len(words))})
        frame["n"] += 1000 * shard
        frame.to_parquet(source / f"{shard}.parquet", row_group_size=150)
        before += list(zip(frame["c"].astype(str), frame["n"], strict=True))
    shutil.copytree(source, tmp_path / "kept")
    shuffle(source, None if in_place else target, buffer_blocks=2, passes=passes, in_place=in_place)
    verdict = verify(tmp_path / "kept", target)
    assert verdict.same, verdict
    if ARROW >= 26:
        assert any(note.startswith("the type of the indices of 'c' differs in") for note in verdict.notes)
    after = pandas.read_parquet(sorted(target.glob("*.parquet")))
    assert str(after["c"].dtype) == "category"
    assert sorted(zip(after["c"].astype(str), after["n"], strict=True)) == sorted(before)
    assert pq.read_table(target).schema.field("c").type.index_type == pa.int32()


FIXED_LISTS: list[tuple[pa.DataType, Any, list[Any]]] = [
    # a type, a value in which a list is missing, and some in which none is, though elements may be
    (pa.list_(pa.float32(), 2), None, [[1.0, 2.0], [None, 3.0], [None, None]]),
    (pa.list_(pa.int8(), 1), None, [[1], [2]]),
    (pa.list_(pa.string(), 3), None, [["a", None, "b"]]),
    (pa.list_(pa.list_(pa.int8(), 2), 3), [[1, 2], None, [3, 4]], [[[1, None], [2, 3], [4, 5]]]),
    (pa.struct([("x", pa.list_(pa.int8(), 2)), ("y", pa.int8())]), {"x": None, "y": 1}, [{"x": [1, None], "y": None}]),
    (pa.struct([("x", pa.list_(pa.int8(), 2))]), None, [{"x": [1, None]}]),
    (pa.list_(pa.list_(pa.int8(), 2)), [[1, 2], None], [[[1, 2]], [[3, 4], [5, 6]]]),
    (pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())]), 2), None, [[{"a": 1, "b": None}, None]]),
    (pa.map_(pa.string(), pa.list_(pa.int8(), 2)), [("k", None)], [[("k", [1, 2]), ("l", [3, 4])]]),
]


@pytest.mark.parametrize("can", [True, False])
@pytest.mark.parametrize("case", FIXED_LISTS, ids=lambda case: str(case[0]))
@settings(max_examples=10)
@given(picks=st.lists(st.integers(0, 9), min_size=1, max_size=40), at=st.none() | st.integers(0, 40))
def test_lists_of_a_fixed_size_that_are_missing_are_read_or_refused_by_name(
    case: tuple[pa.DataType, Any, list[Any]], can: bool, picks: list[int], at: int | None
) -> None:
    """Before Arrow 26, by the footer, before anything is written; and those of which none is missing are read."""
    kind, lacking, values = case
    if can and not lists.reads_missing_lists():
        return
    column = [values[pick % len(values)] for pick in picks]
    if at is not None:
        column.insert(at, lacking)
    try:
        source = parquet_of(pa.table({"n": range(len(column)), "odd": pa.array(column, kind)}), row_group_size=7)
    except pa.ArrowNotImplementedError:  # before 26, Arrow writes few of them
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "reads_missing_lists", lambda: can)
        is_fixed = "fixed_size_list" in str(pq.read_schema(pa.BufferReader(source)).field("odd").type)
        if at is None or can or not is_fixed:  # in maps, older ones make usual lists of them
            PARQUET.scan(MemoryShard(source), 1)
            assert [row["odd"] for row in samples_of(PARQUET, source)] == column
        else:
            with pytest.raises(ShardError, match="the column 'odd' has lists of a fixed size .*; install 26 or later"):
                PARQUET.scan(MemoryShard(source), 1)


def test_lists_of_a_fixed_size_that_no_footer_tells_are_refused_when_they_are_read() -> None:
    column = pa.array([[1], None], pa.list_(pa.int8(), 1))
    source = parquet_of(pa.table({"odd": column}), write_statistics=False)
    PARQUET.scan(MemoryShard(source), 1)
    if lists.reads_missing_lists():
        assert [row["odd"] for row in samples_of(PARQUET, source)] == [[1], None]
    else:
        with pytest.raises(ShardError, match="one of the columns 'odd' has lists of a fixed size .*; install 26 or"):
            samples_of(PARQUET, source)


FIXED = [kind for kind in VALUES if is_flat(pa.schema([("a", kind)])) and not holds_text(pa.schema([("a", kind)]))]


def _fixed_table(kinds: list[tuple[pa.DataType, bool]], rows: int, seed: int) -> pa.Table:
    """Columns of these types, some of which may be missing, and then are at times."""
    fields = [pa.field(f"c{number}", kind, nullable) for number, (kind, nullable) in enumerate(kinds)]
    values = [[value for value in VALUES[kind] if nullable or value is not None] for kind, nullable in kinds]
    picks = np.random.default_rng(seed).integers(0, 6, (len(kinds), rows))
    columns = [
        pa.array([choice[pick % len(choice)] for pick in picks[number].tolist()], kind)
        for number, (choice, (kind, _)) in enumerate(zip(values, kinds, strict=True))
    ]
    return pa.table(columns, schema=pa.schema(fields))


@settings(max_examples=80)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(FIXED), st.booleans()), min_size=1, max_size=5),
    rows=st.integers(1, 700) | st.integers(190_000, 200_000),
    groups=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_footprints_of_fixed_width_columns_are_exact(
    kinds: list[tuple[pa.DataType, bool]], rows: int, groups: int, seed: int
) -> None:
    """What the footer says, what a group takes, and what a writer says that it wrote are one number, but for the last
    bits of blocks that lie side by side."""
    if rows > 1000:
        kinds = kinds[:1]
    shard = MemoryShard(parquet_of(_fixed_table(kinds, rows, seed), row_group_size=-(-rows // groups)))
    blocks = PARQUET.scan(shard, 1).blocks
    pieces = [
        Piece(shard, block.start, block.length, records=block.records, footprint=block.footprint) for block in blocks
    ]
    for block, piece in zip(blocks, pieces, strict=True):
        assert block.exact
        assert block.footprint == PARQUET.read([piece], Arena(1 << 24)).footprint
    total = sum(block.footprint for block in blocks)
    group = PARQUET.read(pieces, Arena(1 << 26))
    whole = PARQUET.read([Piece(shard, 0, shard.size, records=rows, footprint=total)], Arena(1 << 26))
    assert whole.footprint == group.footprint
    assert 0 <= total - group.footprint <= len(kinds) * len(blocks)
    assert read_shards(PARQUET, [shard.data]).footprint <= total
    written = MemoryShard(rewritten(PARQUET, group, permutation(rows, (seed,)), shard.data))
    (block,) = PARQUET.scan(written, 1).blocks
    assert block.footprint == group.footprint == _written(group, shard)


def _written(group: Group, like: MemoryShard) -> int:
    """The footprint that a writer tells."""
    writing = PARQUET.write([gather(group, np.arange(group.records), 1000)], PARQUET.profile(like))
    while True:
        try:
            next(writing)
        except StopIteration as stop:
            return int(stop.value[0].footprint)


def test_a_column_and_a_field_of_one_path_are_both_counted() -> None:
    rows = 1000
    table = pa.table({"a.b": pa.array(range(rows), pa.int64()), "a": [{"b": "x" * 100}] * rows})
    (block,) = PARQUET.scan(MemoryShard(parquet_of(table, use_dictionary=False)), 1).blocks
    assert not block.exact
    assert block.footprint > rows * (8 + 100)
    (narrow,) = PARQUET.scan(MemoryShard(parquet_of(table.select(["a"]), use_dictionary=False)), 1).blocks
    assert block.footprint > narrow.footprint + 8 * rows


def test_two_columns_of_one_path_are_read_whatever_their_dictionaries_hold() -> None:
    texts = [str(number) + "x" * 9_000 for number in range(40)] * 30
    table = pa.table({"a.b": texts, "a": [{"b": text[::-1]} for text in texts], "n": range(len(texts))})
    sources = [parquet_of(table), parquet_of(table.select(["a.b", "n"])), parquet_of(table.select(["a", "n"]))]
    for source in sources:
        assert samples_of(PARQUET, source) == pq.read_table(pa.BufferReader(source)).to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("type_", [pa.string(), pa.list_(pa.string())], ids=str)
def test_a_row_group_whose_strings_exceed_two_gigabytes_works(type_: pa.DataType) -> None:
    rows, text = 2300, "x" * 1_000_000
    value = [text] if pa.types.is_list(type_) else text
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("n", pa.int32()), ("s", type_)]), compression="zstd") as writer:
        part = pa.table(
            {"n": pa.array(range(rows), pa.int32()), "s": pa.chunked_array([pa.array([value], type_)] * rows)}
        )
        writer.write_table(part, row_group_size=rows)
    group = read_shards(PARQUET, [bytes(sink.getvalue())], capacity=3 << 30)
    assert group.table.column("s").nbytes > 2**31
    picked = pa.concat_tables(gather(group, np.array([rows - 1, 0, 7])))
    assert picked.column("n").to_pylist() == [rows - 1, 0, 7]
    assert picked.column("s").to_pylist() == [value] * 3


@pytest.mark.parametrize("place", [0, 1, 2])
def test_row_groups_without_rows_are_passed_by(place: int) -> None:
    table, sink = pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]}), pa.BufferOutputStream()
    parts = [table, table]
    parts.insert(place, table.slice(0, 0))
    with pq.ParquetWriter(sink, table.schema) as writer:
        for part in parts:
            writer.write_table(part)
    source = bytes(sink.getvalue())
    blocks = PARQUET.scan(MemoryShard(source), 1).blocks
    assert [block.records for block in blocks] == [3, 3]
    assert samples_of(PARQUET, source) == table.to_pylist() * 2
    assert sum(part.num_rows for part in PARQUET.stream(MemoryShard(source))) == 6
    written = rewritten(PARQUET, read_shards(PARQUET, [source]), range(6), source)
    assert pq.read_metadata(pa.BufferReader(written)).row_group(0).column(0).is_stats_set


def test_schemas_that_differ_only_far_behind_differ() -> None:
    names = ["feature_" * 20 + end for end in ("one", "two")]
    one, two = (PARQUET.scan(MemoryShard(parquet_of(pa.table({name: [1]}))), 1).schema for name in names)
    assert one != two
    fields = pa.struct([(f"f{n}", pa.int64()) for n in range(300)])
    nested = pa.table({"s": pa.array([{f"f{n}": n for n in range(300)}], fields)})
    assert PARQUET.scan(MemoryShard(parquet_of(nested)), 1).schema.splitlines()[300] == "s.f299: int64"


NAMES = st.sampled_from(
    ["a", "b", "a.b", "", " a", "a: int8", "a: int8, b", 'a"', '"a"', "a\nb: int8", "a\u2028b", "ü"]
)

KINDS = st.recursive(
    st.sampled_from([pa.int8(), pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(3)]),
    lambda inner: st.one_of(
        st.lists(st.builds(pa.field, NAMES, inner, st.booleans()), min_size=1, max_size=3).map(pa.struct),
        st.builds(lambda kind, null: pa.list_(pa.field("element", kind, null)), inner, st.booleans()),
        st.builds(lambda kind, null: pa.list_(pa.field("element", kind, null), 2), inner, st.booleans()),
        st.builds(lambda kind, null: pa.map_(pa.string(), pa.field("value", kind, null)), inner, st.booleans()),
    ),
    max_leaves=4,
)

SCHEMAS = st.lists(st.builds(pa.field, NAMES, KINDS, st.booleans()), min_size=1, max_size=3).map(pa.schema)


def _altered(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The same type, but that one field in it may be missing, or may not."""
    inner = [kind.field(number) for number in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        for at, each in enumerate(inner):
            yield from (pa.struct([*inner[:at], other, *inner[at + 1 :]]) for other in _altered_fields(each))
    elif pa.types.is_fixed_size_list(kind):
        yield from (pa.list_(other, 2) for other in _altered_fields(inner[0]))
    elif pa.types.is_list(kind):
        yield from map(pa.list_, _altered_fields(inner[0]))
    elif pa.types.is_map(kind):
        yield from (pa.map_(pa.string(), other) for other in _altered_fields(kind.item_field))


def _altered_fields(field: pa.Field) -> Iterator[pa.Field]:
    yield field.with_nullable(not field.nullable)
    yield from (field.with_type(kind) for kind in _altered(field.type))


@settings(max_examples=300)
@given(one=SCHEMAS, other=SCHEMAS)
def test_the_text_of_two_schemas_is_the_same_if_and_only_if_they_are(one: pa.Schema, other: pa.Schema) -> None:
    assert (schema_text(one) == schema_text(other)) == one.equals(other)
    assert len(schema_text(one).splitlines()) == len(schema_text(one).split("\n"))
    for place, field in enumerate(one):
        for altered in _altered_fields(field):
            assert schema_text(one.set(place, altered)) != schema_text(one)


def test_a_column_with_a_dot_is_no_struct_in_a_file_either() -> None:
    tables = [
        pa.table({"a.b": pa.array([1], pa.int64())}),
        pa.table({"a": pa.array([{"b": 1}], pa.struct([("b", pa.int64())]))}),
        pa.table({"a": [{"b": 1}]}, schema=pa.schema([pa.field("a", pa.struct([("b", pa.int64())]), nullable=False)])),
    ]
    texts = [PARQUET.scan(MemoryShard(parquet_of(table)), 1).schema for table in tables]
    assert texts == ['"a.b": int64', "a: struct\na.b: int64", "a: struct not null\na.b: int64"]


REPEATING: dict[str, tuple[pa.DataType, Callable[[list[str | None]], Any]]] = {
    "list": (pa.list_(pa.string()), lambda words: words),
    "list of structs": (
        pa.large_list(pa.struct([("n", pa.int8()), ("w", pa.list_(pa.binary()))])),
        lambda words: [{"n": 1, "w": words}, None, {"n": 2, "w": None}] if words else None,
    ),
    "map": (pa.map_(pa.string(), pa.list_(pa.string())), lambda words: [("key", words), ("other", None)]),
    "struct": (pa.struct([("w", pa.list_(pa.string()))]), lambda words: {"w": words} if words else None),
    "plain": (pa.string(), lambda words: "".join(word or "" for word in words) or None),
}


def _length(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_length, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_length, value))
    return len(value) if isinstance(value, str | bytes) else 0


@pytest.mark.parametrize("held", REPEATING)
@settings(max_examples=25)
@example(counts=[0, 300], usual=1, seed=0)  # whose first row shows no dictionary
@example(counts=[1] * 20 + [300], usual=60, seed=0)
@given(
    counts=st.lists(st.sampled_from([0, 1, 1, 1, 2, 30, 300]), min_size=1, max_size=40),
    usual=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_rows_that_are_sure_to_take_little_do(held: str, counts: list[int], usual: int, seed: int) -> None:
    """However unevenly rows repeat what is stored once; and what the largest takes is known before it is decoded."""
    kind, hold = REPEATING[held]
    words = ["a", "word", "w" * 5_000, None]
    rng = np.random.default_rng(seed)
    column = [hold([words[pick] for pick in rng.integers(0, len(words), count)]) for count in counts]
    source = parquet_of(pa.table({"c": pa.array(column, kind)}))
    footer, limit = pq.read_metadata(pa.BufferReader(source)), 100_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "_SURE_BYTES", limit)
        sure = repeats.sure_rows(pa.BufferReader(source), footer, 0, range(footer.num_columns), usual, limit)
    sizes = [_length(row) - (len("keyother") if held == "map" else 0) for row in column]
    assert 1 <= sure.rows <= usual
    taken = [sum(sizes[at : at + sure.rows]) for at in range(len(sizes))]
    assert sure.rows == 1 or max(taken) <= 3 * limit
    assert sure.largest >= max(sizes) or max(sizes) <= limit or held == "plain"


_VIEWS = pytest.mark.skipif(ARROW < 21, reason="before 21, Arrow does not write views")


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array(["a", "b"], pa.string_view()), marks=_VIEWS),
        pytest.param(pa.array([{"x": b"a"}], pa.struct([("x", pa.binary_view())])), marks=_VIEWS),
        pa.array([[None], []], pa.list_(pa.null())),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_cannot_be_mixed_is_refused_by_name(column: pa.Array) -> None:
    shard = MemoryShard(parquet_of(pa.table({"plain": [1] * len(column), "odd": column})))
    with pytest.raises(ShardError, match="cannot put the column 'odd' of .* in another order; store it as plain"):
        PARQUET.scan(shard, 1)


def test_the_older_kind_of_lz4_is_read_and_becomes_the_newer() -> None:
    table = pa.table({"a": ["one", "two"] * 500})
    shard = parquet_of(table, compression="LZ4", use_dictionary=False)
    said = b"\x18\x01a\x15\x0e"  # the path of the column, and the codec, by thrift's rules
    assert shard.count(said) == 1
    old = shard.replace(said, said[:-1] + b"\x0a")
    group = read_shards(PARQUET, [old])
    new = rewritten(PARQUET, group, np.arange(1000), old)
    assert pq.read_table(pa.BufferReader(new)).equals(table)
    assert pq.read_metadata(pa.BufferReader(new)).row_group(0).column(0).compression == "LZ4"


@pytest.mark.parametrize("code", [3, 8, 50], ids=["LZO", "the next that will be", "none"])
def test_a_codec_that_arrow_does_not_know_is_refused_by_its_column(code: int) -> None:
    """Asked for its name, Arrow ends the process."""
    shard = parquet_of(pa.table({"z": [3, 4], "a": [1, 2]}), compression="BROTLI", use_dictionary=False)
    said = b"\x18\x01a\x15\x08"  # the path of the column, and the codec, by thrift's rules
    assert shard.count(said) == 1
    file = MemoryShard(shard.replace(said, said[:-1] + bytes([2 * code])))
    for ask in (PARQUET.profile, form_of):
        with pytest.raises(ShardError, match=f"column 'a' has codec {code}, which Arrow"):
            ask(file)

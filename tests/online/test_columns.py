"""Some columns of Parquet, what stands for missing values, and nulls that are found before the first batch."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import corgi2
from corgi2.errors import SourceError
from corgi2.online.loader import Loader
from corgi2.online.room import room_for
from tests.shards import ARROW, parquet_of

ROWS = 40


def _table(first: int = 0) -> pa.Table:
    ids = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "image": [bytes([n % 251]) * 20_000 for n in ids],
            "text": [None if n % 7 == 0 else f"t{n}" for n in ids],
            "label": pa.array([None if n % 5 == 0 else n % 3 for n in ids], pa.int32()),
            "seen": pa.array([None if n % 4 == 0 else n % 2 == 0 for n in ids], pa.bool_()),
            "meta": [{"lang": "en", "n": n} for n in ids],
            "meta.own": [float(n) for n in ids],
        }
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("columns") / "in"
    folder.mkdir()
    for shard in range(3):
        data = parquet_of(_table(shard * ROWS), row_group_size=10, compression="none", use_dictionary=False)
        (folder / f"{shard}.parquet").write_bytes(data)
    return folder


def _ids(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch["id"]]


def _read_bytes(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that an epoch asks of the store."""
    from corgi2.records.shard import WatchedShard

    real, sizes = WatchedShard.readinto, list[int]()

    def noting(self: WatchedShard, start: int, buffer: memoryview) -> None:
        sizes.append(len(buffer))
        real(self, start, buffer)

    with monkeypatch.context() as patch:
        patch.setattr(WatchedShard, "readinto", noting)
        assert sorted(_ids(loader)) == list(range(3 * ROWS))
    return sum(sizes)


@pytest.mark.parametrize("columns", [["id"], ["id", "meta.own"], ["text", "id"], ["id", "meta"]], ids=str)
def test_only_the_columns_asked_for_come_out_and_they_are_those_of_whole_rows(
    columns: Sequence[str], source: Path
) -> None:
    rest = {"shuffle": False, "batch_size": 7}
    whole = Loader(source, fill={"label": -1, "seen": False}, **rest)  # type: ignore[arg-type]
    for batch, wider in zip(Loader(source, columns=columns, **rest), whole, strict=True):  # type: ignore[arg-type]
        assert batch.keys() == set(columns)
        assert all(np.array_equal(batch[name], wider[name]) for name in columns)
    for row in Loader(source, columns=columns, shuffle=False):
        assert row.keys() == set(columns)
    (table, *_) = Loader(source, columns=columns, batch_format="arrow", **rest)  # type: ignore[arg-type]
    assert table.equals(_table().select([name for name in _table().column_names if name in columns])[:7])


def test_other_columns_cost_neither_bytes_nor_memory(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.stat().st_size for path in source.iterdir())
    narrow = Loader(source, columns=["id"], batch_size=8, buffer="100KB")
    assert _read_bytes(narrow, monkeypatch) < size // 20
    whole = Loader(source, fill={"label": -1, "seen": False}, batch_size=8)
    assert _read_bytes(whole, monkeypatch) > size * 0.9
    exact = narrow.catalog.index
    assert exact.column("exact").all()
    assert (exact.column("footprint") < 40 * 10).all(), "an id, a bit, and its places in lists"
    assert room_for(narrow.catalog, 100_000, 1, None).blocks == 12
    with pytest.raises(SourceError, match="buffer='100 KB' is too small"):
        Loader(source, batch_size=8, buffer="100KB", fill={"label": 0, "seen": False})


def test_columns_of_shuffled_data_keep_their_order_and_need_no_second_scan(source: Path, tmp_path: Path) -> None:
    corgi2.shuffle(source, tmp_path / "mixed", buffer="20MB")
    first = Loader(tmp_path / "mixed", columns=["id", "text"], batch_size=8, buffer_blocks=3)
    whole = Loader(tmp_path / "mixed", batch_size=8, buffer_blocks=3, fill={"label": -1, "seen": False})
    assert first.catalog.lineage is not None
    assert _ids(first) == _ids(whole)
    again = Loader(tmp_path / "mixed", columns=["id", "text"], batch_size=8)
    assert again.catalog.source.store.requests.reads <= 2, "the index, and the footer that names the columns"


def test_what_stands_for_missing_values_is_in_every_kind_of_batch(source: Path) -> None:
    fill = {"label": -1, "seen": True, "text": ""}
    settings: dict[str, Any] = {"columns": ["id", *fill], "fill": fill, "shuffle": False}
    want = {name: [fill[name] if value is None else value for value in _table()[name].to_pylist()] for name in fill}
    (batch, *_) = Loader(source, batch_size=ROWS, **settings)
    assert batch["label"].dtype == np.int32
    assert batch["seen"].dtype == bool
    rows = list(Loader(source, **settings))[:ROWS]
    (table, *_) = Loader(source, batch_size=ROWS, batch_format="arrow", **settings)
    for name in fill:
        assert list(batch[name]) == want[name]
        assert [row[name] for row in rows] == want[name]
        assert table[name].to_pylist() == want[name]


@pytest.mark.skipif(ARROW < 26, reason="before 26, Arrow writes no lists of one length of which some are missing")
def test_missing_lists_of_one_length_and_missing_values_in_them_are_filled(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table({"v": pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int32(), 2))})
    (tmp_path / "in" / "a.parquet").write_bytes(parquet_of(table))
    (batch,) = Loader(tmp_path / "in", batch_size=4, shuffle=False, fill={"v": -1})
    assert batch["v"].tolist() == [[1, 2], [-1, -1], [3, -1], [5, 6]]
    with pytest.raises(SourceError, match=r"'v' of fixed_size_list.* has nulls.*fill={'v': …}"):
        Loader(tmp_path / "in", batch_size=4)


def test_nulls_are_found_when_a_loader_is_made_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(4):
        table = pa.table({"n": pa.array([1, None if shard == 3 else 2], pa.int64()), "x": [0.5, None]})
        (tmp_path / "in" / f"{shard}.parquet").write_bytes(parquet_of(table))
    for _ in range(2):  # the second time it is known
        with pytest.raises(SourceError, match=r"'n' of int64 has nulls.*fill={'n': …}, or columns=\[…\] without it"):
            Loader(tmp_path / "in", batch_size=2)
    assert len(list(Loader(tmp_path / "in", batch_size=2, columns=["x"]))) == 4
    assert sum(batch["n"].sum() for batch in Loader(tmp_path / "in", batch_size=2, fill={"n": 0})) == 10
    assert [row["n"] for row in Loader(tmp_path / "in", shuffle=False)][-1] is None
    (tmp_path / "in" / "3.parquet").unlink()
    assert len(list(Loader(tmp_path / "in", batch_size=2))) == 3


def test_without_statistics_nulls_are_found_when_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    data = parquet_of(pa.table({"n": [1, None]}), write_statistics=False)
    (tmp_path / "in" / "a.parquet").write_bytes(data)
    with pytest.raises(SourceError, match="'n' of int64 has nulls"):
        list(Loader(tmp_path / "in", batch_size=2))


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [
        (pa.timestamp("us", "UTC"), datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), 86_400_000_000),
        (pa.timestamp("ms"), datetime.datetime(1970, 1, 2), 86_400_000),
        (pa.date32(), datetime.date(1970, 2, 1), 31),
        (pa.duration("ns"), datetime.timedelta(seconds=1), 1_000_000_000),
        (pa.time64("us"), datetime.time(0, 0, 1), 1_000_000),
    ],
    ids=str,
)
def test_times_are_whole_numbers_in_the_unit_of_their_column(
    kind: pa.DataType, value: Any, number: int, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    data = parquet_of(pa.table({"t": pa.array([value, value], kind)}))
    (tmp_path / "in" / "a.parquet").write_bytes(data)
    (batch,) = Loader(tmp_path / "in", batch_size=2)
    assert batch["t"].dtype == np.int64
    assert batch["t"].tolist() == [number, number]
    assert next(iter(Loader(tmp_path / "in")))["t"] == value


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"columns": ["labels"]}, "no column 'labels'; did you mean 'label'"),
        ({"columns": ["zz"]}, "no column 'zz'; there are 'id', 'image'"),
        ({"columns": "id"}, "columns must be a list of names"),
        ({"columns": []}, "columns must be a list of names"),
        ({"fill": {"label": "none"}}, "fill={'label': 'none'}: the column of int32 cannot hold this"),
        ({"fill": {"label": None}}, "give a value that is not missing itself"),
        ({"fill": {"meta": 0}}, "only numbers, booleans, times, texts"),
        ({"columns": ["id"], "fill": {"label": 0}}, "the column is not among columns="),
    ],
    ids=str,
)
def test_columns_that_are_not_there_and_values_that_do_not_fit_are_refused(
    settings: dict[str, Any], words: str, source: Path
) -> None:
    with pytest.raises(ValueError, match=words.replace("[", r"\[").replace("{", r"\{")):
        Loader(source, **settings)


def test_formats_without_columns_refuse_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match="are for Parquet, and this is jsonl; choose and fill in a transform"):
        Loader(tmp_path / "in", columns=["a"])


def test_a_state_of_other_columns_is_refused(source: Path) -> None:
    fill = {"label": -1}
    loader = Loader(source, columns=["id", "label"], fill=fill, batch_size=8)
    next(iter(loader))
    state = loader.state_dict()
    Loader(source, columns=["id", "label"], fill=fill, batch_size=8).load_state_dict(state)
    for others in ({"columns": ["id"]}, {"columns": ["id", "label"], "fill": {"label": 0}}, {"columns": None}):
        with pytest.raises(SourceError, match=r"the state belongs to an epoch with (columns|fill)="):
            Loader(source, **others).load_state_dict(state)


def test_the_loaders_of_torch_take_them_alike(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from corgi2.torch import CorgiDataset, CorgiLoader

    settings: dict[str, Any] = {"columns": ["id", "label"], "fill": {"label": -1}, "batch_size": 8}
    want = [_ids([batch]) for batch in Loader(source, **settings)]
    assert [_ids([batch]) for batch in CorgiDataset(source, **settings)] == want
    loader = CorgiLoader(source, num_workers=1, cache_dir=tmp_path / "cache", **settings)
    for batch, ids in zip(loader, want, strict=True):
        assert (batch.keys(), batch["id"].tolist()) == ({"id", "label"}, ids)
        assert batch["label"].min() >= -1
    assert loader.state_dict()["rules"]["columns"] == ["id", "label"]
    assert corgi2.cache(tmp_path / "cache").bytes < sum(path.stat().st_size for path in source.iterdir()) // 20

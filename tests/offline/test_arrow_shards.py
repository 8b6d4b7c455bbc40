"""Arrow shards go through everything that others do: ranges of record batches, passes, blocks, indexes, loaders."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from corgi2.dataset.indexing import index
from corgi2.offline.run import shuffle
from corgi2.online.loader import Loader
from corgi2.proof.comparison import verify
from tests.shards import arrow_of

ROWS = 200


def _source(folder: Path) -> Path:
    folder.mkdir()
    for shard in range(4):
        table = pa.table({"n": range(shard * ROWS, (shard + 1) * ROWS), "text": ["x" * 50] * ROWS})
        data = arrow_of(table, "file", 10, compression="lz4")
        (folder / f"part-{shard:04d}.feather").write_bytes(data)
    return folder


@pytest.mark.parametrize("way", [{"range_size": "2KB"}, {"passes": 2, "block_size": "1KB"}, {"workers": 1}], ids=str)
def test_every_way_of_mixing_keeps_all_rows(way: dict[str, Any], tmp_path: Path) -> None:
    source = _source(tmp_path / "in")
    assert index(source).records == 4 * ROWS
    shuffle(source, tmp_path / "out", buffer_blocks=2, **way)
    assert verify(source, tmp_path / "out").same
    found = [n for batch in Loader(tmp_path / "out", batch_size=64) for n in batch["n"].tolist()]
    assert found != sorted(found) == [*range(4 * ROWS)]


def test_blocks_of_a_copy_are_those_that_were_written(tmp_path: Path) -> None:
    """A scan joins small blocks; that of a copy finds those of the shuffle, and their lineage."""
    source, copy = _source(tmp_path / "in"), tmp_path / "copy"
    shuffle(source, tmp_path / "out", buffer_blocks=2, block_size="1KB")
    blocks = index(tmp_path / "out").blocks
    copy.mkdir()
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            (copy / path.relative_to(tmp_path / "out")).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(tmp_path / "out")).write_bytes(path.read_bytes())
    assert index(copy).blocks == blocks > 4

"""What a notebook shows of results and loaders: one short line each, with what they are of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import corgi2
from corgi2.torch import CorgiDataset, CorgiLoader
from tests.sources import write_source

MOST = 300
"""Characters, without the address of the data."""

SHOWN: dict[str, tuple[str, Callable[[Path, Path], Any]]] = {
    "Report": ("120 records in 4 shards", lambda src, dst: corgi2.shuffle(src, dst, buffer="50MB")),
    "Verdict": ("120 records", lambda src, dst: corgi2.verify(src, dst)),
    "Audit": ("120 records", lambda _, dst: corgi2.verify(dst)),
    "Inspection": ("120 records in 4 shards of tar", lambda src, _: corgi2.inspect(src)),
    "Indexed": ("120 records in 4 blocks", lambda src, _: corgi2.index(src)),
    "Advice": ("CorgiPile: ", lambda src, _: corgi2.plan(src, buffer="50MB")),
    "Loader": ("next epoch 0: batches of 8 of ", lambda _, dst: corgi2.Loader(dst, batch_size=8)),
    "CorgiDataset": ("batches of 8 of ", lambda _, dst: CorgiDataset(dst, batch_size=8)),
    "CorgiLoader": ("next epoch 0: batches of 8 of ", lambda _, dst: CorgiLoader(dst, batch_size=8)),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("reprs")
    write_source(root / "in", ".tar", [30] * 4)
    corgi2.shuffle(root / "in", root / "out", buffer="50MB")
    return root / "in", root / "out"


@pytest.mark.parametrize("kind", SHOWN)
def test_a_result_is_shown_in_one_short_line_that_says_what_it_is(kind: str, folders: tuple[Path, Path]) -> None:
    says, make = SHOWN[kind]
    shown = repr(make(*folders))
    assert shown.startswith(f"<{kind}")
    assert shown.endswith(">")
    assert says in shown
    assert "\n" not in shown
    assert len(shown.replace(str(folders[0].parent), "")) <= MOST

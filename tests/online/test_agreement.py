"""Ranks that would read other examples than the others expect are told so, and nobody waits for anybody."""

import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from corgi2.errors import SourceError
from corgi2.torch import CorgiLoader, agreement
from tests.ranks import meet
from tests.sources import write_source
from tests.torch_train import texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agreement") / "in"
    write_source(folder, ".parquet", [13, 7, 20, 9, 12])
    return folder


def _join() -> int:
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    return torch.distributed.get_rank()


def _loader(source: Path, **settings: Any) -> CorgiLoader:
    return CorgiLoader(source, **{"buffer_blocks": 2, "batch_size": 5} | settings)


def _told(loader: CorgiLoader) -> str:
    """What its next iteration is refused with, if it is."""
    try:
        next(iter(loader))
    except RuntimeError as error:
        return str(error)
    return ""


def _differ(source: Path) -> list[str]:
    """What each of several differences is told as, on this rank, which comes after the other."""
    rank = _join()
    changed: list[dict[str, Any]] = [
        {},
        {"buffer_blocks": 1},
        {"num_workers": 2},
        {"batch_size": 4},
        {"seed": 1},
        {"tail": "keep"},
        {"cache_dir": source.parent / "cache"},
        {"columns": ["t"]},
    ]
    loaders = [_loader(source, **(settings if rank else {})) for settings in changed]
    set_on_one = _loader(source)
    if rank:
        set_on_one.set_epoch(3)
    resumed_on_one = _loader(source)
    if rank:
        given = _loader(source)
        given._journey._check = lambda *_: None
        next(iter(given))
        resumed_on_one.load_state_dict(json.loads(json.dumps(given.state_dict())))
        torch.distributed.barrier()
    told = [_told(loader) for loader in [*loaders, set_on_one, resumed_on_one]]
    if not rank:
        torch.distributed.barrier()
    torch.distributed.barrier()
    alone = _loader(source, world_size=1, rank=0)  # another number of examples each, and no complaint
    return [*told, _told(alone)]


def test_each_difference_is_told_by_name_and_equal_ranks_hear_nothing(source: Path, tmp_path: Path) -> None:
    first, second = meet(tmp_path, 2, _differ, source)
    assert first == [""] * 11
    named = [
        "window=2 (elsewhere 4)",
        "workers=2 (elsewhere 1)",
        "item=4 (elsewhere 5)",
        "seed=1 (elsewhere 0)",
        "tail='keep' (elsewhere 'drop')",
        "cache_dir=True (elsewhere False)",
        "columns=['t'] (elsewhere None)",
        "epoch=3 (elsewhere 0)",
        "resumes=[[2, 1, 4, 5, 1, 5]] (elsewhere [])",
    ]
    for name, text in zip(named, second[1:-1], strict=True):
        assert text.startswith("rank 1 would read other examples than the other ranks expect: ")
        assert name in text
    assert [second[0], second[-1]] == ["", ""]


def _epochs(source: Path) -> list[list[list[str]]]:
    """Many epochs without a word between the ranks, after rank 0 has looked at a batch of its own."""
    rank = _join()
    if not rank:
        next(iter(_loader(source, rank=0, world_size=1)))
    loader = _loader(source, buffer_blocks=None, buffer="auto")
    epochs = [[texts(batch) for batch in loader] for _ in range(12)]
    store, keys = torch.distributed.distributed_c10d._get_default_store(), loader._journey._check.args[0]._key  # type: ignore[attr-defined]
    assert sum(store.check([keys(number)]) for number in range(12)) <= 9
    return epochs


def test_ranks_in_agreement_share_every_epoch_and_old_keys_go(source: Path, tmp_path: Path) -> None:
    first, second = meet(tmp_path, 2, _epochs, source)
    for one, other in zip(first, second, strict=True):
        names = list(itertools.chain(*one, *other))
        assert len(set(names)) == len(names) == 60


def _look_alone(source: Path) -> int:
    """Rank 0 looks at a batch, while the others have no such loader, or wait for it in vain."""
    rank = _join()
    agreement.PATIENCE_SECONDS = 1.0
    if rank == 0:
        size = len(next(iter(_loader(source)))["t"])
        torch.distributed.barrier()
        return size
    torch.distributed.barrier()
    with pytest.raises(SourceError, match="rank 0 has made no such loader for 1 s; give a size"):
        [CorgiLoader(source, batch_size=5) for _ in range(2)]
    return 0


def test_a_rank_that_looks_alone_never_hangs(source: Path, tmp_path: Path) -> None:
    assert meet(tmp_path, 2, _look_alone, source) == [5, 0]


def _peek(source: Path, sets: bool) -> list[list[str]]:
    """Rank 0 looks at a batch, and then both ranks train in step."""
    rank, loader, given = _join(), _loader(source), list[list[str]]()
    if rank == 0:
        next(iter(loader))
    for epoch in range(2):
        if sets:
            loader.set_epoch(epoch)
        for batch in loader:
            given.append(texts(batch))
            torch.distributed.barrier()
    return given


def test_a_rank_that_has_looked_at_a_batch_is_not_an_epoch_ahead_unnoticed(source: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as told:
        meet(tmp_path, 2, _peek, source, False)
    assert "rank 0 has left this epoch at batch 1 and is in the next one, while rank 1 goes on" in str(told.value)
    first, second = meet(tmp_path / "set", 2, _peek, source, True)
    for epoch in range(2):
        part = slice(epoch * 6, epoch * 6 + 6)
        names = list(itertools.chain(*first[part], *second[part]))
        assert len(set(names)) == len(names) == 60

"""Accelerate: a prepared `CorgiLoader` gives every rank its own part, and its states are saved and loaded."""

import itertools
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from corgi2.records.shard import WatchedShard
from corgi2.torch import CorgiDataset, CorgiLoader
from tests.ranks import meet
from tests.trainers.common import EXAMPLES, Model, numbers, write_numbers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("accelerate") / "in")


def _loader(source: Path, **settings: Any) -> CorgiLoader:
    return CorgiLoader(source, **{"buffer_blocks": 2, "batch_size": 5} | settings)


def _train(source: Path, folder: Path) -> dict[str, Any]:
    """Three epochs; within the second, the state is saved; then it is loaded into another loader, and the rest is read
    again. And what each step knows."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, loader = Model(), _loader(source, num_workers=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared, optimizer, same = accelerator.prepare(model, optimizer, loader)
    assert same is loader
    epochs, syncs = [], []
    for epoch in range(3):
        given = []
        for step, batch in enumerate(loader):
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(batch["x"], batch["labels"])["loss"])
                optimizer.step()
                optimizer.zero_grad()
            given.append(numbers(batch))
            syncs.append(accelerator.sync_gradients)
            if (epoch, step) == (1, 2):
                accelerator.save_state(str(folder / "middle"))
        epochs.append(given)
        if epoch == 1:
            accelerator.save_state(str(folder / "end"))
    assert not accelerator.gradient_state.in_dataloader
    resumed = []
    for name in ("middle", "end"):
        accelerator.load_state(str(folder / name))
        resumed.append([numbers(batch) for _ in range(2) for batch in loader])
    return {"epochs": epochs, "syncs": syncs, "resumed": resumed}


def test_each_rank_has_its_part_and_goes_on_from_saved_states(source: Path, tmp_path: Path) -> None:
    ranks = meet(tmp_path, 2, _train, source, tmp_path)
    for epoch in range(3):
        seen = Counter(number for rank in ranks for batch in rank["epochs"][epoch] for number in batch)
        assert len(seen) == EXAMPLES - EXAMPLES % 2
        assert set(seen.values()) == {1}
    assert ranks[0]["epochs"][0] != ranks[0]["epochs"][1]
    for rank in ranks:
        first, second, third = rank["epochs"]
        assert len(first) == 6
        assert rank["syncs"] == [False, False, False, True, False, True] * 3, "every fourth, and the last"
        middle, end = rank["resumed"]
        assert middle == second[3:] + third
        assert end[: len(third)] == third


def _gather(source: Path) -> dict[str, Any]:
    """What all ranks together find, by the tail that a loader has, and by batches of other sizes."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    found = dict[str, Any]()
    for size, tail, workers in [(5, "repeat", 0), (5, "repeat", 2), (4, "repeat", 0), (15, "drop", 0)]:
        loader = accelerator.prepare(_loader(source, batch_size=size, tail=tail, num_workers=workers))
        gathered = [accelerator.gather_for_metrics(batch["number"]).tolist() for batch in loader]
        found[f"{size} {tail} {workers}"] = sorted(itertools.chain(*gathered))
        if (size, tail, workers) == (15, "drop", 0):
            found["reads"] = _reads(loader)
    return found


def _reads(loader: CorgiLoader) -> list[list[int]]:
    """The byte ranges of blocks that one more epoch reads."""
    ranges, real = list[list[int]](), WatchedShard.readinto

    def noting(self: WatchedShard, start: int, buffer: memoryview) -> None:
        ranges.append([int(Path(self.name).stem), start, len(buffer)])
        real(self, start, buffer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WatchedShard, "readinto", noting)
        sum(1 for _ in loader)
    return ranges


def test_metrics_are_gathered_from_every_example_once(source: Path, tmp_path: Path) -> None:
    first, second = meet(tmp_path, 2, _gather, source)
    blocks = first.pop("reads") + second.pop("reads")
    assert len(blocks) <= len({tuple(block) for block in blocks}) + 1, "but for one that the ranks share at the end"
    assert first == second
    for name, found in first.items():
        if "repeat" in name:
            assert found == list(range(EXAMPLES)), name
        else:
            assert len(set(found)) == len(found) == EXAMPLES - 1, name


def _skip(source: Path) -> list[Any]:
    """An epoch whose first batches are skipped, the one after it, what is refused, and where batches are put."""
    from accelerate import Accelerator, PartialState

    accelerator = Accelerator(cpu=True)
    whole, loader = _loader(source, num_workers=1), accelerator.prepare(_loader(source, num_workers=1))
    epochs = [[numbers(batch) for batch in whole] for _ in range(2)]
    skipping = accelerator.skip_first_batches(loader, 2)
    assert [numbers(batch) for batch in skipping] == epochs[0][2:]
    assert [numbers(batch) for batch in loader] == epochs[1]
    plain = accelerator.prepare(torch.utils.data.DataLoader(CorgiDataset(source, batch_size=5), batch_size=None))
    with pytest.raises(RuntimeError, match="give a CorgiLoader to accelerator.prepare"):
        list(plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(accelerator.state._shared_state, "device", torch.device("meta"))
        patch.setitem(PartialState._shared_state, "device", torch.device("meta"))
        assert {batch["x"].device.type for batch in loader} == {"meta"}
    return epochs


def test_batches_are_skipped_and_a_plain_data_loader_is_refused(source: Path, tmp_path: Path) -> None:
    first, second = meet(tmp_path, 2, _skip, source)
    assert not {number for batch in first[0] for number in batch} & {number for batch in second[0] for number in batch}


def _until_killed(source: Path, folder: Path, steps: int) -> list[list[int]]:
    """Goes on from the last state, if there is one, and ends without a word after some steps."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(_loader(source, num_workers=1))
    if (folder / "state").exists():
        accelerator.load_state(str(folder / "state"))
    given = list[list[int]]()
    while len(given) < steps:
        for batch in loader:
            given.append(numbers(batch))
            accelerator.save_state(str(folder / "state"))
            if len(given) == steps:
                break
    if steps == 4:
        (folder / f"seen-{accelerator.process_index}").write_text(json.dumps(given))
        accelerator.wait_for_everyone()
        os.kill(os.getpid(), signal.SIGKILL)
    return given


def test_a_training_that_is_killed_goes_on_as_if_it_had_not_been(source: Path, tmp_path: Path) -> None:
    whole = meet(tmp_path, 2, _until_killed, source, tmp_path / "unbroken", 12)
    with pytest.raises(AssertionError, match="it ended early"):
        meet(tmp_path / "first", 2, _until_killed, source, tmp_path / "broken", 4)
    rest = meet(tmp_path / "second", 2, _until_killed, source, tmp_path / "broken", 8)
    before = [json.loads((tmp_path / "broken" / f"seen-{rank}").read_text()) for rank in range(2)]
    assert [first + second for first, second in zip(before, rest, strict=True)] == whole

"""Lightning: `Trainer.fit` on a `CorgiLoader`, and restarts from checkpoints wherever they were made."""

import itertools
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from corgi2.torch import CorgiLoader
from tests.ranks import meet
from tests.trainers.common import EXAMPLES, Model, numbers, write_numbers

pytestmark = pytest.mark.slow
BATCHES = 6
"""Of 5 examples, on each of two ranks."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("lightning") / "in")


def _loader(source: Path, **settings: Any) -> CorgiLoader:
    return CorgiLoader(source, **{"buffer_blocks": 2, "batch_size": 5} | settings)


def _module(seen: list[Any]) -> Any:
    """A module that notes the epoch and the numbers of each training step, and those of each validation step."""
    import lightning.pytorch as pl

    class Noting(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, _: int) -> Any:
            seen.append([self.current_epoch, numbers(batch)])
            return self.model(batch["x"], batch["labels"])["loss"]

        def validation_step(self, batch: Any, _: int) -> None:
            seen.append(["validation", numbers(batch)])

        def predict_step(self, batch: Any, _: int) -> Any:
            return numbers(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Noting()


def _trainer(ranks: int, folder: Path | None = None, **settings: Any) -> Any:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from corgi2.lightning import CorgiCallback

    callbacks: list[Any] = [CorgiCallback()]
    if folder is not None:
        for every in ({"every_n_train_steps": 1}, {"every_n_epochs": 1, "save_on_train_epoch_end": True}):
            name = "step-{step}" if "every_n_train_steps" in every else "epoch-{epoch}"
            callbacks.append(ModelCheckpoint(folder, name, save_top_k=-1, auto_insert_metric_name=False, **every))
    return pl.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=folder is not None,
        callbacks=callbacks,
        **{"max_epochs": 3, "num_sanity_val_steps": 0} | settings,
    )


def _fit(source: Path, folder: Path | None, start: str | None = None, workers: int = 0, **settings: Any) -> list[Any]:
    seen = list[Any]()
    trainer = _trainer(int(os.environ["WORLD_SIZE"]), folder, **settings)
    trainer.fit(_module(seen), _loader(source, num_workers=workers), ckpt_path=start)
    return seen


def _restarts(source: Path, folder: Path) -> dict[str, Any]:
    """A whole training, and from each kind of checkpoint the rest."""
    found: dict[str, Any] = {"whole": _fit(source, folder, workers=1)}
    for name in ("step-8", "step-6", "epoch-0"):
        found[name] = _fit(source, None, str(folder / f"{name}.ckpt"))  # one worker reads like none
    limited = _fit(source, folder / "limited", limit_train_batches=4)
    found["limited"] = limited
    for name in ("step-4", "epoch-1"):
        found[f"limited {name}"] = _fit(source, None, str(folder / "limited" / f"{name}.ckpt"), limit_train_batches=4)
    return found


def test_a_restart_from_any_checkpoint_gives_what_an_unbroken_training_gives(source: Path, tmp_path: Path) -> None:
    ranks = meet(tmp_path, 2, _restarts, source, tmp_path / "out")
    for epoch in range(3):
        steps = [batch for rank in ranks for number, batch in rank["whole"] if number == epoch]
        assert len(steps) == 2 * BATCHES
        assert set(Counter(itertools.chain(*steps)).values()) == {1}
        assert sum(map(len, steps)) == EXAMPLES - 1
    for rank in ranks:
        whole, limited = rank["whole"], rank["limited"]
        assert len({str(batch) for _, batch in whole}) == 3 * BATCHES
        for name, done in {"step-8": 8, "step-6": 6, "epoch-0": 6}.items():
            assert rank[name] == whole[done:], name
        assert [batch for _, batch in limited] == [batch for at, (_, batch) in enumerate(whole) if at % BATCHES < 4]
        for name, done in {"step-4": 4, "epoch-1": 8}.items():
            assert rank[f"limited {name}"] == limited[done:], name


def _until_killed(source: Path, folder: Path, steps: int) -> list[Any]:
    """Goes on from the last checkpoint, if there is one, which is made every second step; killed after some steps, if
    so told."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Killing(pl.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if trainer.global_step == steps:
                (folder / f"seen-{os.environ['RANK']}").write_text(json.dumps(seen))
                trainer.strategy.barrier()
                os.kill(os.getpid(), signal.SIGKILL)

    seen = list[Any]()
    trainer = _trainer(2)
    trainer.callbacks += [ModelCheckpoint(folder, save_last=True, every_n_train_steps=2), Killing()]
    last = folder / "last.ckpt"
    trainer.fit(_module(seen), _loader(source, num_workers=1), ckpt_path=str(last) if last.exists() else None)
    return seen


def test_a_training_that_is_killed_goes_on_as_if_it_had_not_been(source: Path, tmp_path: Path) -> None:
    whole = meet(tmp_path, 2, _until_killed, source, tmp_path / "unbroken", 0)
    broken = tmp_path / "broken"
    with pytest.raises(AssertionError, match="it ended early"):
        meet(tmp_path / "first", 2, _until_killed, source, broken, 9)
    rest = meet(tmp_path / "second", 2, _until_killed, source, broken, 0)
    before = [json.loads((broken / f"seen-{rank}").read_text()) for rank in range(2)]
    assert [first[:8] + second for first, second in zip(before, rest, strict=True)] == whole, "it was saved after 8"
    assert all(len(rank) == 3 * BATCHES for rank in whole)


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_devices_completes_the_epoch(ranks: int, source: Path, tmp_path: Path) -> None:
    whole = meet(tmp_path, 2, _fit, source, tmp_path / "out")
    start = str(tmp_path / "out" / "step-2.ckpt")
    rest = meet(tmp_path / "other", ranks, _fit, source, None, start, 1)
    first = [batch for rank in whole for _, batch in rank[:2]]
    for epoch in range(3):
        steps = [batch for rank in rest for number, batch in rank if number == epoch]
        counts = Counter(itertools.chain(*steps, *(first if epoch == 0 else [])))
        assert set(counts.values()) == {1}, epoch
        assert EXAMPLES - len(counts) < ranks, epoch


def _others(source: Path) -> dict[str, Any]:
    """What else Lightning does with loaders."""
    import lightning.pytorch as pl

    class Data(pl.LightningDataModule):  # type: ignore[misc]
        def train_dataloader(self) -> Any:
            return _loader(source)

        def val_dataloader(self) -> Any:
            return _loader(source, tail="keep", num_workers=1)

        def predict_dataloader(self) -> Any:
            return _loader(source, tail="keep")

    ranks, found = int(os.environ["WORLD_SIZE"]), dict[str, Any]()
    seen = list[Any]()
    _trainer(ranks, overfit_batches=2, max_epochs=2).fit(_module(seen), _loader(source))
    found["overfit"] = seen
    seen = list[Any]()
    _trainer(ranks, reload_dataloaders_every_n_epochs=1).fit(_module(seen), datamodule=Data())
    found["reloaded"] = seen
    given = _trainer(ranks).predict(_module([]), _loader(source, tail="keep"))
    made = _trainer(ranks).predict(_module([]), datamodule=Data())
    found["predicted"] = [given, made]
    return found


def test_overfitting_reloading_validation_and_prediction(source: Path, tmp_path: Path) -> None:
    ranks = meet(tmp_path, 2, _others, source)
    for rank in ranks:
        assert [batch for _, batch in rank["overfit"]][:2] == [batch for _, batch in rank["overfit"]][2:]
    for kind in range(2):
        predicted = [number for rank in ranks for batch in rank["predicted"][kind] for number in batch]
        assert sorted(predicted) == list(range(EXAMPLES))
    validated = Counter(
        number for rank in ranks for at, batch in rank["reloaded"] if at == "validation" for number in batch
    )
    assert validated == dict.fromkeys(range(EXAMPLES), 3)
    trained = [str(batch) for rank in ranks for at, batch in rank["reloaded"] if at != "validation"]
    assert len(set(trained)) == len(trained) == 2 * 3 * BATCHES

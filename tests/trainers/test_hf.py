"""Hugging Face's Trainer: `CorgiTrainer` trains, evaluates and resumes on every rank's own part of the data."""

import itertools
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from corgi2.torch import CorgiDataset
from tests.ranks import meet
from tests.trainers.common import COUNTS, EXAMPLES, Model, numbers, write_numbers

pytestmark = pytest.mark.slow
BATCHES = 8
"""Of 4 examples, on each of two ranks."""
BLOCKS = sum(-(-count // 5) for count in COUNTS)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("hf") / "in")


def _trainer(source: Path, folder: Path, seen: list[list[int]], kind: str = "CorgiTrainer", **settings: Any) -> Any:
    """A trainer that notes what each step gets."""
    import transformers

    from corgi2 import hf

    class Noting(Model):
        def forward(self, x: Any, labels: Any, number: Any = None) -> dict[str, Any]:
            if self.training:
                seen.append(numbers({"number": number}))
            return super().forward(x, labels, number)

    transformers.logging.set_verbosity_error()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        save_strategy="steps",
        save_steps=3,
        logging_strategy="no",
        **{"num_train_epochs": 2, "gradient_accumulation_steps": 2, "dataloader_num_workers": 1} | settings,
    )
    make = hf.CorgiTrainer if kind == "CorgiTrainer" else transformers.Trainer
    return make(
        model=Noting(),
        args=arguments,
        train_dataset=CorgiDataset(source, buffer_blocks=2),
        eval_dataset=CorgiDataset(source, buffer_blocks=2, tail="keep"),
        compute_metrics=lambda found: {"gathered": sorted(found.predictions[1].tolist())},
    )


def _train(source: Path, folder: Path) -> dict[str, Any]:
    seen, again = list[list[int]](), list[list[int]]()
    trainer = _trainer(source, folder, seen)
    trainer.train()
    metrics = trainer.evaluate()
    resumed = _trainer(source, folder, again, dataloader_num_workers=0)  # one worker reads like none
    requests = resumed.train_dataset.catalog.source.store.requests
    before = requests.reads
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
    return {
        "seen": seen,
        "again": again,
        "gathered": metrics["eval_gathered"],
        "steps": trainer.state.global_step,
        "reads": requests.reads - before,
    }


def test_it_trains_evaluates_and_resumes_in_mid_epoch(source: Path, tmp_path: Path) -> None:
    ranks = meet(tmp_path, 2, _train, source, tmp_path / "out")
    for rank in ranks:
        assert (len(rank["seen"]), rank["steps"]) == (2 * BATCHES, BATCHES)
        assert rank["again"] == rank["seen"][6:]
        assert rank["gathered"] == list(range(EXAMPLES))
        assert rank["reads"] <= len(COUNTS) + BLOCKS // 2 + 1 + 4, "footers, the second epoch, and two buffers"
    for epoch in range(2):
        part = slice(epoch * BATCHES, (epoch + 1) * BATCHES)
        counts = Counter(itertools.chain(*(batch for rank in ranks for batch in rank["seen"][part])))
        assert len(counts) == EXAMPLES - 1
        assert set(counts.values()) == {1}
    assert ranks[0]["seen"][:BATCHES] != ranks[0]["seen"][BATCHES:]


def _until_killed(source: Path, folder: Path, steps: int) -> list[list[int]]:
    """Goes on from the last checkpoint, if there is one; ends without a word after some steps, if so told."""
    import transformers

    class Killing(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step == steps:
                (folder / f"seen-{os.environ['RANK']}").write_text(json.dumps(seen))
                os.kill(os.getpid(), signal.SIGKILL)

    seen = list[list[int]]()
    trainer = _trainer(source, folder, seen, gradient_accumulation_steps=1, dataloader_num_workers=0)
    trainer.add_callback(Killing())
    trainer.train(resume_from_checkpoint=any(folder.glob("checkpoint-*")))
    return seen


def test_a_training_that_is_killed_goes_on_as_if_it_had_not_been(source: Path, tmp_path: Path) -> None:
    whole = meet(tmp_path, 2, _until_killed, source, tmp_path / "unbroken", 0)
    broken = tmp_path / "broken"
    with pytest.raises(AssertionError, match="it ended early"):
        meet(tmp_path / "first", 2, _until_killed, source, broken, 11)
    rest = meet(tmp_path / "second", 2, _until_killed, source, broken, 0)
    before = [json.loads((broken / f"seen-{rank}").read_text()) for rank in range(2)]
    assert [first[:9] + second for first, second in zip(before, rest, strict=True)] == whole, "it was saved after 9"


def _refused(source: Path, folder: Path) -> str:
    with pytest.raises(RuntimeError) as refusal:
        _trainer(source, folder, [], "Trainer", dataloader_num_workers=0).train()
    return str(refusal.value)


def test_a_plain_trainer_is_refused_with_both_ways_out(source: Path, tmp_path: Path) -> None:
    for text in meet(tmp_path, 2, _refused, source, tmp_path / "out"):
        assert "corgi2.hf.CorgiTrainer" in text
        assert "rank=0, world_size=1" in text


def _with_text(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"text": f"number {sample['number']}"}


@pytest.mark.parametrize("removes", [True, False])
def test_collators_get_samples_without_the_columns_that_the_model_does_not_know(
    removes: bool, source: Path, tmp_path: Path
) -> None:
    got = list[set[str]]()

    def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
        got.extend(set(sample) for sample in samples)
        return {"number": [sample["number"] for sample in samples]}

    trainer = _trainer(source, tmp_path, [], dataloader_num_workers=0, remove_unused_columns=removes)
    trainer.train_dataset.transform, trainer.data_collator = _with_text, collate
    assert len(next(iter(trainer.get_train_dataloader()))["number"]) == 4
    assert got == [{"number", "x", "labels"} | ({"text"} if not removes else set())] * 4

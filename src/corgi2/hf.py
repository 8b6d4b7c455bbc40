"""For Hugging Face's Trainer: `CorgiTrainer` trains, evaluates and resumes on a `CorgiDataset`, on any number of ranks.

``class MyTrainer(CorgiLoading, Seq2SeqTrainer)`` gives another trainer the same.
"""

from dataclasses import replace
from typing import Any

from corgi2.extras import needing
from corgi2.online import Feed
from corgi2.torch import CorgiLoader

with needing("hf", "corgi2.hf"):
    from transformers import Trainer


class CorgiLoading:
    """A mixin for `transformers.Trainer`, before it in the list of bases: a data set of corgi2 is read by a
    `CorgiLoader`, which gives every rank its own part; any other is read as usual."""

    def get_train_dataloader(self: Any) -> Any:
        """Batches of ``per_device_train_batch_size``. A resumed training begins at its batch, and reads nothing of what
        was trained on before."""
        if not isinstance(self.train_dataset, Feed):
            return super().get_train_dataloader()  # type: ignore[misc]
        return self.accelerator.prepare(_loader(self, self.train_dataset, self._train_batch_size, "Training"))

    def get_eval_dataloader(self: Any, eval_dataset: Any = None) -> Any:
        """Batches of ``per_device_eval_batch_size``, in which every example counts once."""
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        chosen = self.eval_dataset[chosen] if isinstance(chosen, str) else chosen
        if not isinstance(chosen, Feed):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return self.get_test_dataloader(chosen)

    def get_test_dataloader(self: Any, test_dataset: Any) -> Any:
        """The same for a data set that is given."""
        if not isinstance(test_dataset, Feed):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return self.accelerator.prepare(_loader(self, test_dataset, self.args.eval_batch_size, "Evaluation"))


class CorgiTrainer(CorgiLoading, Trainer):  # type: ignore[misc]
    """`transformers.Trainer` for data sets of corgi2."""


def _loader(trainer: Any, dataset: Feed, batch_size: int, description: str) -> CorgiLoader:
    """Samples become batches by the trainer's collator; a data set that has a batch size makes batches itself."""
    args, collate = trainer.args, None
    if dataset.batch_size is None:
        collate = trainer._get_collator_with_removed_columns(trainer.data_collator, description=description)
    elif dataset.batch_size != batch_size:
        raise ValueError(
            f"the data set makes batches of {dataset.batch_size}, and the trainer expects {batch_size} "
            f"(per_device_{'train' if description == 'Training' else 'eval'}_batch_size); give both the same, or leave "
            "out batch_size in the data set, whose samples the data_collator then makes batches of"
        )
    loader = CorgiLoader(
        dataset,
        batch_size=batch_size,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        pin_memory=args.dataloader_pin_memory,
        persistent_workers=args.dataloader_persistent_workers and args.dataloader_num_workers > 0,
        prefetch_factor=args.dataloader_prefetch_factor if args.dataloader_num_workers else None,
        drop_last=args.dataloader_drop_last and description == "Training",
    )
    part: Any = loader.dataset
    if description != "Training" and part.rules.tail == "keep":
        part.rules = replace(part.rules, tail="repeat")  # what is repeated is not gathered
    return loader

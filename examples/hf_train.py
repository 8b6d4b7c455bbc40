"""Train with Hugging Face's Trainer, and go on from a checkpoint in mid-epoch: python examples/hf_train.py"""

import json
import tempfile
from pathlib import Path

import torch
from transformers import TrainingArguments

import corgi2
from corgi2.hf import CorgiTrainer
from corgi2.torch import CorgiDataset


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 2)

    def forward(self, x, labels):
        logits = self.linear(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


if __name__ == "__main__":  # workers may import this file
    folder = Path(tempfile.mkdtemp())
    (folder / "raw").mkdir()
    for shard in range(20):
        records = [{"x": (torch.randn(32) + shard % 2).tolist(), "labels": shard % 2} for _ in range(100)]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB")
    for steps in (40, 64):  # the first run ends in the middle of the second epoch, and the other goes on there
        args = TrainingArguments(
            str(folder / "out"),
            max_steps=steps,
            save_steps=20,
            per_device_train_batch_size=64,
            per_device_eval_batch_size=64,
            learning_rate=0.1,
        )
        data = CorgiDataset(folder / "mixed", buffer="100MB")
        trainer = CorgiTrainer(model=Model(), args=args, train_dataset=data, eval_dataset=data)
        trainer.train(resume_from_checkpoint=steps > 40)
        print(
            f"step {trainer.state.global_step}: epoch {trainer.state.epoch}, loss {trainer.evaluate()['eval_loss']:.3f}"
        )

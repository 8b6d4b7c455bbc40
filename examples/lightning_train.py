"""Train with Lightning, and go on from its last checkpoint: python examples/lightning_train.py"""

import json
import tempfile
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import corgi2
from corgi2.lightning import CorgiCallback
from corgi2.torch import CorgiLoader


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 2)

    def training_step(self, batch, _):
        x, label = torch.tensor(batch["x"]), torch.tensor(batch["label"])
        return torch.nn.functional.cross_entropy(self.linear(x), label)

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: step {self.global_step}, loss {self.trainer.callback_metrics['loss']:.3f}")

    def on_train_batch_end(self, outputs, *_):
        self.log("loss", outputs["loss"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":  # workers may import this file
    folder = Path(tempfile.mkdtemp())
    (folder / "raw").mkdir()
    for shard in range(20):
        records = [{"x": (torch.randn(32) + shard % 2).tolist(), "label": shard % 2} for _ in range(100)]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB")
    for steps in (40, 96):  # the first run ends in the middle of the second epoch, and the other goes on there
        saving = ModelCheckpoint(folder, "last", every_n_train_steps=20, enable_version_counter=False)
        trainer = pl.Trainer(max_steps=steps, accelerator="cpu", logger=False, callbacks=[CorgiCallback(), saving])
        loader = CorgiLoader(folder / "mixed", batch_size=64, buffer="100MB", num_workers=1)
        checkpoint = folder / "last.ckpt"
        trainer.fit(Model(), loader, ckpt_path=str(checkpoint) if checkpoint.exists() else None)

"""Train with Accelerate, and go on from a state that was saved in mid-epoch: python examples/accelerate_train.py

For several processes (accelerate launch), make the data beforehand, once.
"""

import json
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator

import corgi2
from corgi2.torch import CorgiLoader

if __name__ == "__main__":  # workers may import this file
    folder = Path(tempfile.mkdtemp())
    (folder / "raw").mkdir()
    for shard in range(20):
        records = [{"x": (torch.randn(32) + shard % 2).tolist(), "label": shard % 2} for _ in range(100)]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB")

    accelerator = Accelerator()
    model = torch.nn.Linear(32, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = CorgiLoader(folder / "mixed", batch_size=64, buffer="100MB", num_workers=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            x, label = (torch.tensor(batch[name], device=accelerator.device) for name in ("x", "label"))
            loss = torch.nn.functional.cross_entropy(model(x), label)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if (epoch, step) == (2, 9):
                accelerator.save_state(str(folder / "state"))
        accelerator.print(f"epoch {epoch}: {step + 1} batches, loss {loss:.3f}")
    accelerator.load_state(str(folder / "state"))
    accelerator.print(f"{sum(1 for _ in loader)} batches of epoch 2 are left after its tenth")

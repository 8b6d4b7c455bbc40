"""Train from shards of one class each, and keep a checkpoint to go on from: python examples/train.py"""

import json
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import corgi2
from corgi2.torch import CorgiDataset

if __name__ == "__main__":  # workers may import this file
    folder = Path(tempfile.mkdtemp())
    (folder / "raw").mkdir()
    for shard in range(20):
        records = [{"x": (torch.randn(32) + shard % 2).tolist(), "label": shard % 2} for _ in range(100)]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB")

    ds = CorgiDataset(folder / "mixed", buffer="100MB", batch_size=64)
    loader = DataLoader(ds, batch_size=None, num_workers=2)
    model = torch.nn.Linear(32, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for batch in loader:
            x, label = torch.tensor(batch["x"]), torch.tensor(batch["label"])
            loss = torch.nn.functional.cross_entropy(model(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {len(loader)} batches, loss {loss:.3f}")
        checkpoint = {"model": model.state_dict(), "data": ds.state_after(batches=len(loader), num_workers=2)}
        torch.save(checkpoint, folder / "checkpoint.pt")  # later: ds.load_state_dict(checkpoint["data"])

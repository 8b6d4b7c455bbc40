"""Train from shards of one class each, and keep a checkpoint to go on from: python examples/train.py"""

import json
import tempfile
from pathlib import Path

import torch

import corgi2
from corgi2.torch import CorgiLoader

if __name__ == "__main__":  # workers may import this file
    folder = Path(tempfile.mkdtemp())
    (folder / "raw").mkdir()
    for shard in range(20):
        records = [{"x": (torch.randn(32) + shard % 2).tolist(), "label": shard % 2} for _ in range(100)]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB")

    loader = CorgiLoader(folder / "mixed", buffer="100MB", batch_size=64, num_workers=2)
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
        checkpoint = {"model": model.state_dict(), "data": loader.state_dict()}  # at any batch, not only here
        torch.save(checkpoint, folder / "checkpoint.pt")  # later: loader.load_state_dict(checkpoint["data"])

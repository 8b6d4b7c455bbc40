"""How badly shards are mixed as a model sees it, by the gradients of its last layer: python examples/gradients.py"""

import json
import tempfile
from pathlib import Path

import torch

import corgi2
from corgi2.quality.measuring import measure

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def gradient(sample):
    """The gradient of one example's loss: what SGD adds up."""
    x, label = torch.tensor(sample["x"]), torch.tensor(sample["label"])
    loss = torch.nn.functional.cross_entropy(model(x), label)
    return torch.cat([part.ravel() for part in torch.autograd.grad(loss, model[-1].parameters())])


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    (folder / "raw").mkdir()
    for shard in range(40):
        records = [{"x": (torch.randn(8) + shard % 2).tolist(), "label": shard % 2} for _ in range(50)]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB", buffer_blocks=10)
    for name in ("raw", "mixed"):
        found = measure(folder / name, vector=gradient)
        print(f"{name}: h_D = {found.h_D:.1f} of at most b = {found.block_records:.0f}; {found.verdict}")

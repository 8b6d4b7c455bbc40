"""Train without torch, with JAX if it is there, else NumPy, and go on in mid-epoch: python examples/numpy_train.py"""

import json
import tempfile
from pathlib import Path

import numpy

import corgi2

try:
    import jax.numpy as np  # on several hosts, call jax.distributed.initialize() first: the loader then knows its rank
except ImportError:
    np = numpy

if __name__ == "__main__":
    folder, rng = Path(tempfile.mkdtemp()), numpy.random.default_rng(0)
    (folder / "raw").mkdir()
    for shard in range(20):
        records = [{"x": (rng.normal(size=32) + shard % 2).tolist(), "label": shard % 2} for _ in range(100)]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB")

    loader, weights = corgi2.Loader(folder / "mixed", batch_size=64, buffer="100MB"), np.zeros(33)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            x, label = np.asarray(batch["x"]), np.asarray(batch["label"])
            x = np.concatenate([x, np.ones((len(x), 1))], 1)
            error = 1 / (1 + np.exp(-x @ weights)) - label
            weights = weights - 0.1 * x.T @ error / len(x)
            if (epoch, step) == (2, 9):
                state = json.dumps(loader.state_dict())  # each process has its own, and all are the same
        print(f"{np.__name__} epoch {epoch}: {len(loader)} batches, error {np.abs(error).mean():.3f}")
    loader.load_state_dict(json.loads(state))
    print(f"{sum(1 for _ in loader)} batches of epoch 2 are left after its tenth")

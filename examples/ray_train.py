"""Train on Ray with two workers, each of which gets its own half of every epoch: python examples/ray_train.py"""

import json
import sys
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import corgi2
from corgi2.torch import CorgiLoader


def train(config):
    """Runs in every worker. The loader finds its rank by itself, and prepare_data_loader leaves its part alone."""
    loader = CorgiLoader(config["data"], buffer="100MB", batch_size=64, seed=0)
    loader = ray.train.torch.prepare_data_loader(loader)  # only moves batches to the device
    model = ray.train.torch.prepare_model(torch.nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        seen = []
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(torch.tensor(batch["x"])), torch.tensor(batch["label"]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["id"]
        rank = ray.train.get_context().get_world_rank()
        (Path(config["log"]) / f"{epoch}-{rank}.json").write_text(json.dumps(seen))
        ray.train.report({"epoch": epoch, "loss": loss.item()})


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    for name in ("raw", "log"):
        (folder / name).mkdir(parents=True)
    for shard in range(20):
        ids = range(100 * shard, 100 * shard + 100)
        records = [{"id": n, "x": (torch.randn(32) + shard % 2).tolist(), "label": shard % 2} for n in ids]
        (folder / "raw" / f"train-{shard:06}.jsonl").write_text("\n".join(map(json.dumps, records)))
    ray.init(include_dashboard=False)  # once, for the shuffle and for training
    corgi2.shuffle(folder / "raw", folder / "mixed", buffer="100MB", engine="ray")
    trainer = TorchTrainer(
        train,
        train_loop_config={"data": str(folder / "mixed"), "log": str(folder / "log")},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(folder / "runs")),
    )
    trainer.fit()
    for epoch in range(2):
        seen = [json.loads((folder / "log" / f"{epoch}-{rank}.json").read_text()) for rank in range(2)]
        print(f"epoch {epoch}: {len(seen[0])} and {len(seen[1])} examples, {len(set(seen[0] + seen[1]))} in all")

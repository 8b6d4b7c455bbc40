"""The paper's own recipes, for those who have the data and a GPU: ResNet-18 on CIFAR-100, ResNet-50 on ImageNet.

SHARDS and TEST are WebDataset tars, an image (jpg, jpeg or png) and its class as a number (cls) a sample:

    python -m experiments.recipes cifar100 train --test test --buffer 4MB --workers 2 --keep pile       CorgiPile
    corgi2 shuffle train mixed --buffer 2MB
    python -m experiments.recipes cifar100 mixed --test test --buffer 4MB --workers 2 --keep corgi2     Corgi²
    python -m experiments.recipes cifar100 train --test test --buffer 4GB --workers 2 --keep full       a full shuffle

    corgi2 shuffle s3://bucket/imagenet s3://bucket/imagenet-mixed --buffer 3GB                         2 % of 147 GB
    torchrun --nproc-per-node 8 -m experiments.recipes imagenet s3://bucket/imagenet-mixed \\
        --test s3://bucket/imagenet-val --buffer 750MB --workers 4 --keep corgi2

A buffer of so many bytes is a rank's, two halves and all its workers together; a half of a worker's share holds at
least one shard, so that small buffers need small shards: here 50 images of CIFAR-100. The batch is that of all ranks.
It goes on after the last epoch that it finished, kept in --keep.
"""

import argparse
import io
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from corgi2.torch import CorgiDataset
from experiments import augment
from experiments.resnet import resnet18, resnet50

Prepare = Callable[[Image.Image], Image.Image]


@dataclass(frozen=True, slots=True)
class Recipe:
    """As the paper's appendix has it; SGD with a rate that follows a cosine."""

    model: Callable[[int], nn.Module]
    classes: int
    side: int
    epochs: int
    batch: int
    decay: float
    vary: Prepare
    rate: float = 0.1
    momentum: float = 0.9


RECIPES = {
    "cifar100": Recipe(resnet18, 100, 32, 200, 256, 5e-4, augment.for_cifar),
    "imagenet": Recipe(resnet50, 1000, 224, 100, 2048, 1e-4, augment.for_imagenet),
}
_MEAN, _SCALE = (np.array(values, np.float32) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def decode(batch: Mapping[str, Any], prepare: Prepare) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of a tar, as a network takes it."""
    bodies = next(batch[part] for part in ("jpg", "jpeg", "png") if part in batch)
    return torch.stack([_pixels(body, prepare) for body in bodies]), torch.tensor(
        [int(label) for label in batch["cls"]]
    )


def _pixels(body: bytes, prepare: Prepare) -> torch.Tensor:
    with Image.open(io.BytesIO(body)) as image:
        pixels = np.asarray(prepare(image.convert("RGB")), np.float32) / 255
    return torch.from_numpy(((pixels - _MEAN) / _SCALE).transpose(2, 0, 1).copy())


@dataclass(frozen=True, slots=True)
class Asked:
    shards: str
    test: str
    buffer: str = "auto"
    workers: int = 8
    seed: int = 0
    keep: Path = Path("recipe")
    epochs: int | None = None
    batch: int | None = None


def run(recipe: Recipe, asked: Asked) -> list[dict[str, float]]:
    """Train, test after every epoch, keep what is needed to go on."""
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else "cpu"
    if ranks > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(asked.seed)
    epochs, batch = asked.epochs or recipe.epochs, (asked.batch or recipe.batch) // ranks
    model: nn.Module = recipe.model(recipe.classes).to(device)
    vary = partial(decode, prepare=recipe.vary)
    data = CorgiDataset(
        asked.shards, buffer=asked.buffer, batch_size=batch, drop_last=True, seed=asked.seed, transform=vary
    )
    loader = DataLoader(data, batch_size=None, num_workers=asked.workers)
    steps = len(data)
    optimizer = torch.optim.SGD(model.parameters(), recipe.rate, recipe.momentum, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    kept, told = asked.keep / "state.pt", []
    if kept.exists():
        state = torch.load(kept, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        told = state["told"]
        if state["epochs"] != epochs:
            raise SystemExit(f"{kept}: was begun for {state['epochs']} epochs, not {epochs}; name another --keep")
    trained = DistributedDataParallel(model) if ranks > 1 else model
    for epoch in range(len(told), epochs):
        began = time.perf_counter()
        data.set_epoch(epoch)
        torch.manual_seed(hash((asked.seed, rank, epoch)) & 0xFFFFFFFF)  # what workers draw from: others on every rank
        loss = _epoch(trained, loader, optimizer, schedule, device)
        found = {"loss": loss, "seconds": time.perf_counter() - began}
        if rank == 0:
            told.append(found | {"accuracy": _test(model, recipe, asked, batch, device)})
            asked.keep.mkdir(parents=True, exist_ok=True)
            parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
            partial_file = kept.with_suffix(".partial")
            torch.save(
                {name: part.state_dict() for name, part in parts.items()} | {"told": told, "epochs": epochs},
                partial_file,
            )
            partial_file.rename(kept)
            (asked.keep / "told.json").write_text(json.dumps(told, indent=1))
            print(f"epoch {epoch + 1}: {told[-1]}", flush=True)
    return told


def _epoch(
    model: nn.Module,
    loader: "DataLoader[Any]",
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    device: Any,
) -> float:
    model.train()
    losses = []
    for x, y in loader:
        loss = functional.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


def _test(model: nn.Module, recipe: Recipe, asked: Asked, batch: int, device: Any) -> float:
    """Accuracy on all test images, in per cent."""
    prepare = partial(decode, prepare=augment.for_test(recipe.side))
    data = CorgiDataset(
        asked.test, batch_size=batch, shuffle=False, tail="keep", transform=prepare, rank=0, world_size=1
    )
    model.eval()
    right = count = 0
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=None, num_workers=asked.workers):
            right += int((model(x.to(device)).argmax(1).cpu() == y).sum())
            count += len(y)
    return 100 * right / count


def main(arguments: list[str] | None = None) -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("shards", help="the training shards: a folder, a glob, s3://…")
    parser.add_argument("--test", required=True, help="the test shards")
    parser.add_argument("--buffer", default="auto", help="bytes of a rank's buffer, such as 2GB")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("recipe"), help="where to keep the state and the results")
    parser.add_argument("--epochs", type=int, help="others than the paper's")
    parser.add_argument("--batch", type=int, help="another than the paper's, of all ranks")
    asked = vars(parser.parse_args(arguments))
    run(RECIPES[asked.pop("recipe")], Asked(**asked))


if __name__ == "__main__":
    main()

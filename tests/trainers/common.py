"""What the tests of all trainers share: examples that are numbers, and a model that learns from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from tests.shards import parquet_of

COUNTS = [13, 7, 20, 9, 12]
EXAMPLES = sum(COUNTS)


def write_numbers(folder: Path) -> Path:
    """Shards of examples that are numbers, each another one, and a label that follows from it."""
    folder.mkdir(parents=True)
    first = 0
    for shard, count in enumerate(COUNTS):
        numbers = np.arange(first, first + count, dtype=np.int64)
        table = pa.table({"number": numbers, "x": numbers.astype(np.float32) / EXAMPLES, "labels": numbers % 3})
        (folder / f"{shard}.parquet").write_bytes(parquet_of(table, row_group_size=5))
        first += count
    return folder


def numbers(batch: dict[str, Any]) -> list[int]:
    return [int(number) for number in batch["number"]]


class Model(nn.Module):
    """Three classes from one number, in the words of transformers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(1, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, number: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.linear(x[:, None])
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits, "number": number}

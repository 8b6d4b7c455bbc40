"""For PyTorch: `CorgiLoader`, a `DataLoader` that shuffles, shards and resumes by itself, and `CorgiDataset` for a
DataLoader of one's own. Only this package, `corgi2.hf` and `corgi2.lightning` import torch.

In a `CorgiLoader` the process that gives out batches counts them and tells its workers with every batch what to read:
`loader` gives out, `turns` tells, `part` reads; `handing` is what happens to a batch between two processes, `agreement`
how ranks notice that they differ, `accelerating` what Accelerate expects of a loader. The workers of a `CorgiDataset`
know nothing about each other, nor about the next epoch: they agree on it through `corgi2.online`. A
trainer that is built on torch gets a module beside `corgi2.hf` and `corgi2.lightning`, with what it needs of these.
"""

from corgi2.torch.dataset import CorgiDataset
from corgi2.torch.loader import CorgiLoader

__all__ = ["CorgiDataset", "CorgiLoader"]

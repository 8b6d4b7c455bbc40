"""Batches as tensors, and which worker reads them."""

from typing import Any

import numpy as np

from corgi2.extras import needing

with needing("torch", "corgi2.torch"):
    import torch
    from torch.utils.data import get_worker_info


def as_tensors(batch: Any) -> Any:
    """Numbers and arrays of them as tensors that share their memory."""
    return {name: _tensor(value) for name, value in batch.items()} if isinstance(batch, dict) else batch


def which_worker() -> tuple[int, int]:
    """Which of how many workers this process is."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else value

"""Which of how many processes this one is: as torch.distributed knows it, or the variables that launchers set."""

import os
import sys

_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def find_world(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """The rank and the number of ranks: those given, or those found; alone where there is no sign of others."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size are given together, or not at all")
    if rank is None or world_size is None:
        rank, world_size = _from_torch() or _from_variables() or (0, 1)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is one of 0 to world_size - 1 (got rank {rank} of {world_size})")
    return rank, world_size


def local_ranks() -> int:
    """How many ranks share this machine."""
    value = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or "1"
    return max(1, int(value)) if value.isdigit() else 1


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _from_variables() -> tuple[int, int] | None:
    for rank, size in _VARIABLES:
        values = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(value.isdigit() for value in values):
            return int(values[0]), int(values[1])
    return None

"""Which of how many processes this one is: as torch.distributed or JAX knows it, or launchers' variables."""

import os
import re
import sys

_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
_TASKS_PER_NODE = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def find_world(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """The rank and the number of ranks: those given, or those found; a single rank if there is no sign of others."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size must be given together, or not at all")
    if rank is None or world_size is None:
        rank, world_size = _from_torch() or _from_jax() or _from_variables() or (0, 1)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be one of 0 to world_size - 1 (got rank {rank} of {world_size})")
    return rank, world_size


def local_ranks() -> int:
    """How many ranks share this machine."""
    value = next((value for name in _LOCAL_SIZES if (value := os.environ.get(name))), "1")
    return max(1, int(value)) if value.isdigit() else 1


def ranks_per_node(world_size: int) -> tuple[int, ...]:
    """How many ranks each node has, in the order of their numbers; empty if there is one node, or no sign of others."""
    for variable in _TASKS_PER_NODE:
        nodes = _tasks(os.environ.get(variable, ""))
        if sum(nodes) == world_size:
            return nodes if len(nodes) > 1 else ()
    local = local_ranks()
    known = any(os.environ.get(name, "").isdigit() for name in _LOCAL_SIZES)
    return (local,) * (world_size // local) if known and local < world_size and world_size % local == 0 else ()


def _tasks(text: str) -> tuple[int, ...]:
    """``4(x2),3`` is 4, 4, 3; nothing, if it is no such text."""
    found = [_TASKS.fullmatch(part) for part in text.split(",")]
    return tuple(int(match[1]) for match in found if match for _ in range(int(match[2] or 1))) if all(found) else ()


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _from_jax() -> tuple[int, int] | None:
    """If the program has called ``jax.distributed.initialize``: only then does asking begin nothing."""
    jax = sys.modules.get("jax")
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if jax is None or is_initialized is None or not is_initialized():
        return None
    return int(jax.process_index()), int(jax.process_count())


def _from_variables() -> tuple[int, int] | None:
    for rank, size in _VARIABLES:
        values = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(value.isdigit() for value in values):
            return int(values[0]), int(values[1])
    return None

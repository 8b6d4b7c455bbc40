"""What starts processes: torchrun, Slurm's variables, plain DDP, and the data-parallel ranks of a device mesh."""

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from corgi2.torch import CorgiLoader
from tests.ranks import meet
from tests.trainers.common import EXAMPLES, Model, numbers, write_numbers


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("launchers") / "in")


def _loader(source: Path, **settings: Any) -> CorgiLoader:
    return CorgiLoader(source, **{"buffer_blocks": 2, "batch_size": 5} | settings)


@pytest.mark.parametrize(("rank", "world"), [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")])
def test_the_variables_of_a_launcher_tell_the_rank(
    rank: str, world: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a script makes its loader before, or without, a process group."""
    parts = []
    monkeypatch.setenv(world, "3")
    for number in range(3):
        monkeypatch.setenv(rank, str(number))
        parts.append([n for batch in _loader(source, tail="keep") for n in numbers(batch)])
    assert sorted(itertools.chain(*parts)) == list(range(EXAMPLES))
    assert sorted(map(len, parts)) == [20, 20, 21]


def _on_a_mesh(source: Path) -> dict[str, Any]:
    """Two data-parallel ranks, of two processes each, which hold parts of a model; and DDP over all four."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    data = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))["data"]
    shared = _loader(source, buffer_blocks=None, buffer="10MB", rank=data.get_local_rank(), world_size=data.size())
    parts = [[numbers(batch) for batch in shared] for _ in range(2)]
    model, seen, loader = DistributedDataParallel(Model()), list[int](), _loader(source)
    for batch in loader:  # each step waits for all ranks
        model(batch["x"], batch["labels"])["loss"].backward()
        seen += numbers(batch)
    return {"data": data.get_local_rank(), "parts": parts, "seen": seen, "state": loader.state_dict()}


@pytest.mark.slow
def test_processes_that_share_a_model_read_the_same_and_those_of_ddp_each_their_own(
    source: Path, tmp_path: Path
) -> None:
    ranks = meet(tmp_path, 4, _on_a_mesh, source)
    by_part = {rank["data"]: rank["parts"] for rank in ranks}
    assert all(rank["parts"] == by_part[rank["data"]] for rank in ranks)
    for epoch in range(2):
        counts = Counter(n for parts in by_part.values() for batch in parts[epoch] for n in batch)
        assert (len(counts), set(counts.values())) == (EXAMPLES - EXAMPLES % 2, {1})
    seen = Counter(n for rank in ranks for n in rank["seen"])
    assert (len(seen), set(seen.values())) == (EXAMPLES - EXAMPLES % 4, {1})
    assert all(rank["state"] == ranks[0]["state"] for rank in ranks)


PROGRAM = """
import json, sys, torch.distributed
from pathlib import Path
from corgi2.torch import CorgiLoader
torch.distributed.init_process_group("gloo")
loader = CorgiLoader(sys.argv[1], batch_size=5, buffer="auto", num_workers=1)
epochs = [[batch["number"].tolist() for batch in loader] for _ in range(2)]
rank = torch.distributed.get_rank()
Path(sys.argv[2], f"{rank}.json").write_text(json.dumps(epochs))
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_gives_each_process_its_part(source: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "program.py", str(source), "."]
    variables = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *words], cwd=tmp_path, env=variables, check=True, timeout=200, capture_output=True)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for epoch in range(2):
        seen = Counter(n for rank in ranks for batch in rank[epoch] for n in batch)
        assert (len(seen), set(seen.values())) == (EXAMPLES - EXAMPLES % 2, {1})
    assert ranks[0][0] != ranks[0][1]

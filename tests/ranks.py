"""Ranks of a real process group: processes that each run a function and hand back what it returns.

They are forked from one process that has imported the frameworks, which takes seconds, and has no threads.
"""

import json
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch.distributed


def meet(folder: Path, ranks: int, run: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``run(*arguments)`` returns on each rank, by way of JSON; the launcher's variables are set."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    folder.mkdir(parents=True, exist_ok=True)
    port, results = _free_port(), [folder / f"rank-{rank}.json" for rank in range(ranks)]
    processes = [
        context.Process(target=_rank, args=(rank, ranks, port, results[rank], run, arguments)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    late = [process for process in processes if process.exitcode is None]
    for process in late:
        process.kill()
        process.join()
    found = [json.loads(path.read_text()) if path.exists() else {"error": "it ended early"} for path in results]
    errors = [result["error"] for result in found if "error" in result]
    assert not late, "a rank waits for another"
    assert not errors, "\n".join(errors)
    return [result["value"] for result in found]


def _rank(rank: int, ranks: int, port: int, result: Path, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": str(ranks)}
    os.environ |= {"ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {"TORCHELASTIC_RUN_ID": "tests", "GROUP_RANK": "0"}  # as torchrun sets them, for Lightning
    multiprocessing.set_start_method("fork", force=True)  # else each worker would import the frameworks again
    try:
        value = {"value": run(*arguments)}
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # the store lives in rank 0
            torch.distributed.destroy_process_group()
    except BaseException:
        value = {"error": traceback.format_exc()}
    result.write_text(json.dumps(value))


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])

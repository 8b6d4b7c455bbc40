"""Which engine makes the groups: the one that was asked for by its name."""

from corgi2.extras import needing
from corgi2.host import keeping_sigterm
from corgi2.offline.engines.engine import Engine
from corgi2.offline.engines.local import LocalEngine


def check_engine(name: str, workers: int | None, tasks: int | None, address: str | None) -> None:
    """Refuse arguments that do not go together, before anything is read."""
    for argument, value in (("workers", workers), ("tasks", tasks)):
        if value is not None and value < 1:
            raise ValueError(f"{argument}={value} must be at least 1")
    if name not in ("local", "ray"):
        raise ValueError(f"engine={name!r} is neither 'local' nor 'ray'")
    if name == "local" and (address is not None or tasks is not None):
        raise ValueError("address= and tasks= are for a Ray cluster: give engine='ray' with them")


def choose_engine(name: str, workers: int, tasks: int | None, address: str | None) -> Engine:
    """The engine of this name. Ray is imported only if it is asked for."""
    check_engine(name, workers, tasks, address)
    if name == "local":
        return LocalEngine(workers)
    with needing("ray", "engine='ray'"), keeping_sigterm():  # Ray installs a handler of its own
        from corgi2.offline.engines.ray import RayEngine
    return RayEngine(workers, tasks or 1, address)

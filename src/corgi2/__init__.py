"""Train from shards as well as from shuffled data: mix homogeneous shards, keep their format, lose no record.

shuffle(src, dst, buffer="8GB")     mix the shards of a data set, offline
verify(src, dst)                    prove that no record was lost, repeated or altered
inspect(src, label="cls")           what a data set is made of, and how badly it is mixed
plan(src, label="cls")              what each way of shuffling costs and buys, and which one to choose
index(src)                          scan a data set once, so that everything else starts at once
cache(path)                         what a loader keeps on this node's disk
Loader(src, batch_size=256)         read it in random order, online; for PyTorch: corgi2.torch.CorgiDataset
"""

from importlib import import_module
from typing import TYPE_CHECKING

from corgi2.version import __version__

if TYPE_CHECKING:
    from corgi2.advice import Advice, plan
    from corgi2.caching import CacheContents, cache
    from corgi2.dataset import Indexed, index
    from corgi2.errors import Corgi2Error, DamageError, ShardError, SourceError, StoreError
    from corgi2.offline import Report, shuffle
    from corgi2.online import Loader
    from corgi2.proof import Audit, Verdict, verify
    from corgi2.quality import Inspection, inspect

__all__ = [
    "Advice",
    "Audit",
    "CacheContents",
    "Corgi2Error",
    "DamageError",
    "Indexed",
    "Inspection",
    "Loader",
    "Report",
    "ShardError",
    "SourceError",
    "StoreError",
    "Verdict",
    "__version__",
    "cache",
    "index",
    "inspect",
    "plan",
    "shuffle",
    "verify",
]

_HOMES = {
    "advice": ("Advice", "plan"),
    "caching": ("CacheContents", "cache"),
    "dataset": ("Indexed", "index"),
    "errors": ("Corgi2Error", "DamageError", "ShardError", "SourceError", "StoreError"),
    "offline": ("Report", "shuffle"),
    "online": ("Loader",),
    "proof": ("Audit", "Verdict", "verify"),
    "quality": ("Inspection", "inspect"),
}


def __getattr__(name: str) -> object:
    """Load exports on first use: importing numpy and pyarrow takes most of the start-up time."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"corgi2.{home}"), name)
    raise AttributeError(f"module 'corgi2' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

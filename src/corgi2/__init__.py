"""Train from shards as well as from shuffled data: mix homogeneous shards, keep their format, lose no record."""

from corgi2.describe import Description, inspect
from corgi2.errors import Corgi2Error, DamageError, ShardError, SourceError, StoreError
from corgi2.index import Index, index_source, open_index, save_index
from corgi2.source import find_source
from corgi2.version import __version__

__all__ = [
    "Corgi2Error",
    "DamageError",
    "Description",
    "Index",
    "ShardError",
    "SourceError",
    "StoreError",
    "__version__",
    "find_source",
    "index_source",
    "inspect",
    "open_index",
    "save_index",
]

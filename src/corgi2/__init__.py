"""Train from shards as well as from shuffled data: mix homogeneous shards, keep their format, lose no record."""

from corgi2.describe import Description, inspect
from corgi2.errors import Corgi2Error, DamageError, ShardError, SourceError, StoreError
from corgi2.index import index_source
from corgi2.offline import Report, shuffle
from corgi2.verdict import Verdict, verify
from corgi2.version import __version__

__all__ = [
    "Corgi2Error",
    "DamageError",
    "Description",
    "Report",
    "ShardError",
    "SourceError",
    "StoreError",
    "Verdict",
    "__version__",
    "index_source",
    "inspect",
    "shuffle",
    "verify",
]

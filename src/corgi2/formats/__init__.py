"""Bytes of a shard ↔ records. Formats know nothing about stores: a shard is a name, a size, and bytes on demand.

A new format is a module, or a folder, with a ``FORMATS`` table (suffix → format), and a line in `registry`; `foreign`
has those that are only recognised. If its records lie one after another, and nothing before or behind them depends on
their number or order, it needs only a `framed.Framing`; any other implements `format.Format` (docs/formats.md). A file
beside shards that other readers need (``state.json``, ``index.json``) is a `format.SideFiles` of its format, as in
`arrow.hugging_face`.
"""

from corgi2.formats.foreign import foreign_of
from corgi2.formats.format import Columnar, Described, Format
from corgi2.formats.paths import split_path
from corgi2.formats.pipe import PIPE_BYTES
from corgi2.formats.registry import format_of, is_only_numbered, suffix_of, suffixes, without_total

__all__ = [
    "PIPE_BYTES",
    "Columnar",
    "Described",
    "Format",
    "foreign_of",
    "format_of",
    "is_only_numbered",
    "split_path",
    "suffix_of",
    "suffixes",
    "without_total",
]

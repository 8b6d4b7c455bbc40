"""Bytes of a shard ↔ records. Formats know no store: a shard is a name, a size, and bytes on demand.

A new format is a module, or a folder, with a ``FORMATS`` table (suffix → format), and its line in `registry`. One whose
records lie one after another needs no more than a `framed.Framing`; any other implements `format.Format`
(docs/formats.md).
"""

from corgi2.formats.format import Format
from corgi2.formats.pipe import PIPE_BYTES
from corgi2.formats.registry import format_of, suffix_of, suffixes

__all__ = ["PIPE_BYTES", "Format", "format_of", "suffix_of", "suffixes"]

"""Formats: bytes of a shard ↔ records. They know no store: a shard is a name, a size, and bytes on demand.

To add one: a module with a ``FORMATS`` table (suffix → format), and its line in ``_REGISTRY`` below. A format whose
records lie one after another needs no more than a `corgi2.formats.framed.frames.Framing` (see docs/formats.md).
"""

from corgi2.formats.format import Format
from corgi2.formats.pipe import PIPE_BYTES
from corgi2.formats.registry import format_of, suffix_of, suffixes

__all__ = ["PIPE_BYTES", "Format", "format_of", "suffix_of", "suffixes"]

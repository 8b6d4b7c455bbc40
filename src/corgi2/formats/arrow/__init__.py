"""Arrow: a record is a row, a block is one or more record batches."""

from corgi2.formats.arrow.format import FORMATS

__all__ = ["FORMATS"]

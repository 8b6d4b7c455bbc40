"""Parquet: a record is a row, a block is a row group."""

from corgi2.formats.parquet.format import FORMATS

__all__ = ["FORMATS"]

"""Parquet."""

from corgi2.formats.parquet.format import FORMATS

__all__ = ["FORMATS"]

"""WebDataset tar: a record is the consecutive members with one key."""

from corgi2.formats.tar.format import FORMATS

__all__ = ["FORMATS"]

"""WebDataset tar."""

from corgi2.formats.tar.format import FORMATS

__all__ = ["FORMATS"]

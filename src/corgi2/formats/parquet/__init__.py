"""Parquet: a record is a row, a block is a row group.

`format` is the format, `footer` what a file says about itself, `reading` decodes row groups and `writing` encodes them;
`pages`, `lists` and `repeats` find out what Arrow would take, or could not read, before it is asked.
"""

from corgi2.formats.parquet.format import FORMATS

__all__ = ["FORMATS"]

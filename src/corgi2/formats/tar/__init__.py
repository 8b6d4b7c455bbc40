"""WebDataset tar: a record is the consecutive members with one key.

`headers` reads the units of 512 bytes, `chain` finds the members among them, `extended` reads what GNU and PAX headers
say about these, `archive` has the members as arrays; `names` splits names into keys and parts, `samples` decodes
samples, `format` frames records.
"""

from corgi2.formats.tar.format import FORMATS

__all__ = ["FORMATS"]

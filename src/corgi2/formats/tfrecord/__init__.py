"""TFRecord: frames of a length, its checksum, a record's bytes and theirs; `crc32c` checks them, `example` decodes."""

from corgi2.formats.tfrecord.format import FORMATS

__all__ = ["FORMATS"]

"""Checksums of bytes as stored. They find damage; they prove nothing against an adversary."""

from collections.abc import Sequence

import xxhash

from corgi2.records.shard import BLOCK_BYTES, Buffer, ShardFile


class Checksum:
    """A running 128-bit checksum. It finds damage; it is no proof against an adversary."""

    SIZE, _LENGTH = 16, 8

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, data: Buffer) -> None:
        self._state.update(data)

    @staticmethod
    def of(data: Buffer) -> bytes:
        return xxhash.xxh3_128_digest(data)

    def digest(self) -> bytes:
        return self._state.digest()

    @classmethod
    def join(cls, lengths: Sequence[int], checksums: Sequence[bytes]) -> bytes:
        """The checksum of ranges that follow each other: those of all, each after its length; none, if one has none.
        Each may be joined itself."""
        if len(checksums) == 1 or not all(checksums):
            return checksums[0] if all(checksums) else b""
        heads = (length.to_bytes(cls._LENGTH, "little") for length in lengths)
        pairs = zip(heads, checksums, strict=True)
        return b"".join(head + each if len(each) == cls.SIZE else each for head, each in pairs)

    @classmethod
    def like(cls, wanted: bytes, data: Buffer) -> bytes:
        """The checksum of data, of as many ranges as a given one has."""
        if len(wanted) <= cls.SIZE:
            return cls.of(data)
        view, step, found = memoryview(data), cls._LENGTH + cls.SIZE, b""
        for place in range(0, len(wanted), step):
            length = wanted[place : place + cls._LENGTH]
            size = int.from_bytes(length, "little")
            found, view = found + length + cls.of(view[:size]), view[size:]
        return found


def checksum_of(file: ShardFile) -> bytes:
    """The checksum of all bytes of a shard, with one part of it in memory at a time."""
    checksum, part = Checksum(), memoryview(bytearray(min(BLOCK_BYTES, file.size)))
    for start in range(0, file.size, BLOCK_BYTES):
        view = part[: min(BLOCK_BYTES, file.size - start)]
        file.readinto(start, view)
        checksum.update(view)
    return checksum.digest()

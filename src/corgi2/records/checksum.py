"""Checksums of bytes as stored. They find damage; they prove nothing against an adversary."""

import xxhash

from corgi2.records.shard import BLOCK_BYTES, Buffer, ShardFile


class Checksum:
    """A running 128-bit checksum. It finds damage; it is no proof against an adversary."""

    SIZE = 16

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, data: Buffer) -> None:
        self._state.update(data)

    @staticmethod
    def of(data: Buffer) -> bytes:
        return xxhash.xxh3_128_digest(data)

    def digest(self) -> bytes:
        return self._state.digest()


def checksum_of(file: ShardFile) -> bytes:
    """Of all bytes of a shard, a part of it in memory at a time."""
    checksum, part = Checksum(), memoryview(bytearray(min(BLOCK_BYTES, file.size)))
    for start in range(0, file.size, BLOCK_BYTES):
        view = part[: min(BLOCK_BYTES, file.size - start)]
        file.readinto(start, view)
        checksum.update(view)
    return checksum.digest()

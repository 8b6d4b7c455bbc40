"""Blocks of a shard: consecutive messages, with as many record batches as make a request worth its while."""

from collections.abc import Iterator

from corgi2.formats.arrow.layout import Front
from corgi2.formats.arrow.messages import BATCH, Message
from corgi2.formats.arrow.writing import footprint_of
from corgi2.formats.columnar.columns import is_fixed
from corgi2.records import Block

_GROWTH = 2
"""What compressed values are guessed to take, over what they take as stored."""


def blocks_of(front: Front, found: Iterator[Message], block_bytes: int) -> Iterator[Block]:
    """Record batches are joined up to the size of a block. Dictionaries belong to the block behind them."""
    building = _Building(front, front.start)
    for message in found:
        if building.rows and building.length + message.stop - message.start > block_bytes:
            yield building.block()
            building = _Building(front, message.start, building.dictionaries)
        building.add(message)
    if building.rows:
        yield building.block()


class _Building:
    """A block while messages are added."""

    def __init__(self, front: Front, start: int, dictionaries: int = 0) -> None:
        self._front, self._start = front, start
        self.rows = self.length = self._bytes = 0
        self.dictionaries = dictionaries
        """Bytes of all dictionaries so far, which every block may need."""
        self._exact = not front.has_dictionaries

    def add(self, message: Message) -> None:
        size, is_packed = message.stop - message.start, message.codec >= 0
        self.length = message.stop - self._start
        grown = size * (_GROWTH if is_packed else 1)
        if message.kind == BATCH:
            self.rows, self._bytes = self.rows + message.rows, self._bytes + grown
            self._exact = self._exact and not is_packed
        else:
            self.dictionaries += grown

    def block(self) -> Block:
        footprint = footprint_of(self._front.schema, self.rows, self._bytes + self.dictionaries)
        return Block(self._start, self.length, self.rows, footprint, self._exact or is_fixed(self._front.schema))

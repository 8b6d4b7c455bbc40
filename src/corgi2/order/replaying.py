"""What earlier worlds have left of an epoch, worked out from a few integers for each of them.

A world deals what it finds, and every reader consumes its buffers in turn, so any reader of a later world can tell what
all others have consumed.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from corgi2.order.dealing import Deal, deal
from corgi2.order.epochs import Rest, buffer_order
from corgi2.order.worlds import Rules, Share


def consume(rest: Rest, share: Share, rules: Rules, epoch: int, change: int) -> Rest:
    """What a world leaves of what it found."""
    dealt = deal(rest, share.world, rules)
    left = dict(zip(rest.blocks.tolist(), rest.counts.tolist(), strict=True))
    kept: dict[int, npt.NDArray[np.bool_]] = {}
    for reader in range(share.world.readers):
        consumed = share.consumed(reader % share.world.workers)
        for part in dealt.buffers(reader):
            if consumed <= 0:
                break
            size = int(part.counts.sum())
            gone = _gone(part, min(consumed, size), rules, epoch, change, reader)
            consumed -= size
            for block, first, mask in gone:
                there = kept.get(block)
                if there is None:
                    there = kept[block] = np.ones(left[block], bool)
                there[first : first + len(mask)] &= ~mask
    rows = dict(rest.rows)
    for block, mask in kept.items():
        rows[block] = rest.rows_of(block, 0, len(mask))[mask]
        left[block] = len(rows[block])
    counts = np.array([left[block] for block in rest.blocks.tolist()], np.int64)
    filled = counts > 0
    rows = {block: rows[block] for block in rows if left[block]}
    return Rest(rest.blocks[filled], counts[filled], rows, rest.origin)


def _gone(
    part: Deal, consumed: int, rules: Rules, epoch: int, change: int, reader: int
) -> list[tuple[int, int, npt.NDArray[np.bool_]]]:
    """Which records of a buffer's pieces are consumed: the block, the piece's first record, and a mask. Repeating a
    record does not consume it."""
    size = int(part.counts.sum())
    mask = np.ones(size, bool)
    if consumed < size:
        order = buffer_order(size, rules, epoch, change, reader, int(part.buffer[0]))
        mask[order[consumed:]] = False
    ends = np.cumsum(part.counts)
    return [
        (int(part.block[n]), int(part.first[n]), mask[ends[n] - part.counts[n] : ends[n]])
        for n in range(len(ends))
        if not part.again[n]
    ]


def replay(rest: Rest, shares: Sequence[Share], rules: Rules, epoch: int) -> Rest:
    """What all earlier worlds leave of an epoch."""
    for change, share in enumerate(shares):
        rest = consume(rest, share, rules, epoch, change)
    return rest

"""Where the records of several pieces lie in one memory."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corgi2.formats.framed.frames import Bytes, Frames, Hashes
from corgi2.order import Indices
from corgi2.records import Loose, framed_table, number_array


@dataclass(frozen=True, slots=True)
class Placed:
    """Records in memory, from ``start`` on."""

    start: int
    frames: Frames

    @property
    def stop(self) -> int:
        return self.start + int(self.frames.offsets[-1])

    @property
    def records(self) -> int:
        return len(self.frames.offsets) - 1


@dataclass(frozen=True, slots=True)
class Joined:
    """The spans of all pieces. Between two pieces lies a row that is not a record: the padding."""

    offsets: Indices
    rows: Indices
    keys: Hashes | None
    loose: Loose | None

    @staticmethod
    def of(pieces: list[list[Placed]]) -> "Joined":
        """The pieces are used up."""
        all_frames = [part.frames for placed in pieces for part in placed]
        records = sum(len(frames.offsets) - 1 for frames in all_frames)
        offsets, rows = np.empty(records + len(pieces), np.int64), np.empty(records, np.int64)
        keys = np.empty(records, np.uint64) if any(frames.keys is not None for frames in all_frames) else None
        loose = None
        if any(frames.is_loose for frames in all_frames):
            loose = Loose(np.zeros(len(offsets) - 1, np.int64), np.zeros(len(offsets) - 1, np.int64))
        del all_frames
        joined, at = Joined(offsets, rows, keys, loose), 0
        for number, placed in enumerate(pieces):
            while placed:
                joined._add(placed[0], at, at - number)
                at += placed[0].records
                del placed[0]
            at += 1
        return joined

    def alone(self, data: Bytes) -> pa.Table:
        """The records that lie in these bytes, in memory of their own, without what lies between pieces."""
        return framed_table(self.offsets, data, self.loose).take(number_array(self.rows))

    def _add(self, part: Placed, at: int, row: int) -> None:
        frames, count = part.frames, part.records
        np.add(frames.offsets, part.start, out=self.offsets[at : at + count + 1])
        self.rows[row : row + count] = np.arange(at, at + count)
        if self.keys is not None and frames.keys is not None:
            self.keys[row : row + count] = frames.keys
        if self.loose is not None and (held := frames.loose) is not None:
            self.loose.lead[at : at + count], self.loose.tail[at : at + count] = held.lead, held.tail

"""Several small shards, read whole into one memory and split at once: a shard costs little more than its bytes.

Whatever is wrong with one of them is left to the way that looks at one shard at a time, and names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corgi2.errors import ShardError
from corgi2.formats.framed.cutter import Cutter, check_end
from corgi2.formats.framed.frames import Bytes, Frames, Framing, Where
from corgi2.formats.framed.joined import Joined, Placed
from corgi2.formats.framed.windows import lacks
from corgi2.order import Indices
from corgi2.records import Scan, ShardFile


@dataclass(frozen=True, slots=True)
class Together:
    """Shards side by side in memory, each followed by room for a terminator."""

    framing: Framing
    files: Sequence[ShardFile]
    data: Bytes
    cuts: Indices
    frames: list[Frames]

    @staticmethod
    def read(framing: Framing, files: Sequence[ShardFile], memory: int) -> "Together | None":
        """None if the shards must be read one by one."""
        cuts = np.cumsum([0] + [file.size + len(framing.terminator) for file in files])
        if len(files) < 2 or 2 * int(cuts[-1]) > memory:
            return None
        data = np.zeros(int(cuts[-1]), np.uint8)
        for file, start in zip(files, cuts.tolist(), strict=False):
            file.readinto(0, data.data[start : start + file.size])
        where = Where(files[0].name, 0, len(data), last=True)
        frames = framing.split_side_by_side(data, cuts, where)
        if frames is None or not all(len(each.offsets) > 1 for each in frames):
            return None
        return Together(framing, files, data, cuts, frames)._checked()

    def _checked(self) -> "Together | None":
        try:
            for number, (file, frames) in enumerate(zip(self.files, self.frames, strict=True)):
                where = Where(file.name, 0, file.size, last=True)
                check_end(self.framing, self._body(number)[frames.offsets[-1] :], frames.ended, where, whole=True)
        except ShardError:
            return None
        return self

    def _body(self, number: int) -> Bytes:
        start = int(self.cuts[number])
        return self.data[start : start + self.files[number].size]

    def scans(self, record_bytes: int, block_bytes: int) -> list[Scan] | None:
        """The blocks of each shard."""
        found = []
        try:
            for number, (file, frames) in enumerate(zip(self.files, self.frames, strict=True)):
                self.framing.check(file.name, [(0, frames)])
                cutter = Cutter(record_bytes, block_bytes)
                cutter.add(self._body(number), frames.offsets, frames.is_loose)
                found.append(Scan(tuple(cutter.finish())))
        except ShardError:
            return None
        return found

    def table(self) -> pa.Table:
        """All records, in the order of the shards."""
        end = self.framing.terminator
        for number, (file, frames) in enumerate(zip(self.files, self.frames, strict=True)):
            if lacks(self._body(number), end):
                stop = int(self.cuts[number]) + file.size
                self.data[stop : stop + len(end)] = np.frombuffer(end, np.uint8)
                frames.offsets[-1] += len(end)
        joined = Joined.of([[Placed(int(start), each)] for start, each in zip(self.cuts, self.frames, strict=False)])
        return joined.alone(self.data)

"""The loader: random blocks are read into a buffer, shuffled and handed out, each example once per epoch.

Every trainer's adapter builds on `feed`: `loader` for plain Python, `corgi2.torch` for PyTorch; an adapter for a new
trainer goes next to `corgi2.torch`. `choices` are what a caller may give, `view` is the data set as one rank sees it,
and `passages` read an epoch of it. `room` says how many blocks fit in the buffer, `buffers` reads them ahead,
`portions` and `batches` cut what is handed out, `place` is where a reader is, `state` how that is saved, `ranks` which
rank it is, `journey` how one process counts what it gives out, `epochs` how processes agree on an epoch that nobody
counts, `unnamed` the memory that they share, and `stack` what only the stack tells about torch's workers. `slots` hand
batches over from a worker to its parent, as `layouts` lays them out; `transforming` calls a transform, in threads if
there are to be some.
"""

from corgi2.online.choices import Affinity, BatchFormat, Picks, Tail, auto_buffer
from corgi2.online.epochs import BEGIN, LOAD, SET, Event, Iteration, Log
from corgi2.online.feed import Feed, Items
from corgi2.online.journey import Journey, Stage, Turn, place_of_turn
from corgi2.online.layouts import Foreign
from corgi2.online.loader import Loader
from corgi2.online.place import Cursor, Place
from corgi2.online.portions import Taken
from corgi2.online.room import Beside, Room, room_for, slots_for
from corgi2.online.slots import Packed, Ring, unpack
from corgi2.online.stack import SHARDERS, answering_pipe, is_batched_again, sharder
from corgi2.online.transforming import Transform

__all__ = [
    "BEGIN",
    "LOAD",
    "SET",
    "SHARDERS",
    "Affinity",
    "BatchFormat",
    "Beside",
    "Cursor",
    "Event",
    "Feed",
    "Foreign",
    "Items",
    "Iteration",
    "Journey",
    "Loader",
    "Log",
    "Packed",
    "Picks",
    "Place",
    "Ring",
    "Room",
    "Stage",
    "Tail",
    "Taken",
    "Transform",
    "Turn",
    "answering_pipe",
    "auto_buffer",
    "is_batched_again",
    "place_of_turn",
    "room_for",
    "sharder",
    "slots_for",
    "unpack",
]

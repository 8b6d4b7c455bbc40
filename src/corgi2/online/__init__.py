"""The loader: random blocks are read into a buffer, shuffled and handed out, each example once per epoch.

Every trainer's adapter stands on `feed`: `loader` for plain Python, `corgi2.torch` for PyTorch; a new trainer gets
one beside `corgi2.torch`. `room` says how many blocks fit the buffer, `buffers` reads them ahead, `portions` cuts
batches, `place` is where a reader is (the state that is saved), `ranks` who it is, `epochs` how processes agree on
an epoch, and `stack` what only the stack tells about torch's workers.
"""

from corgi2.online.epochs import BEGIN, LOAD, SET, Event, Iteration, Log
from corgi2.online.feed import BatchFormat, Feed, Picks, Tail, Transform
from corgi2.online.loader import Loader
from corgi2.online.place import Cursor, Place
from corgi2.online.portions import Taken
from corgi2.online.room import room_for
from corgi2.online.stack import SHARDERS, answering_pipe, sharder

__all__ = [
    "BEGIN",
    "LOAD",
    "SET",
    "SHARDERS",
    "BatchFormat",
    "Cursor",
    "Event",
    "Feed",
    "Iteration",
    "Loader",
    "Log",
    "Picks",
    "Place",
    "Tail",
    "Taken",
    "Transform",
    "answering_pipe",
    "room_for",
    "sharder",
]

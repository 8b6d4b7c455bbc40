"""The loader: random blocks are read into a buffer, shuffled and handed out, each example once per epoch.

Every trainer's adapter stands on `feed`: `loader` for plain Python, `corgi2.torch` for PyTorch; a new trainer gets one
beside `corgi2.torch`. `place` is the state, `epochs` how processes agree on an epoch, `ranks` who they are.
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

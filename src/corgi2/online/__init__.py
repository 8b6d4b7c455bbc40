"""The online half: random blocks are read into a buffer, shuffled, and handed out, each example once an epoch."""

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

"""``corgi2 demo``: measure, plan, shuffle, verify and train, on handwritten digits that lie class by class."""

from corgi2.demo.tour import run

__all__ = ["run"]

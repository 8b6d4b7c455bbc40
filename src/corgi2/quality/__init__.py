"""``corgi2 inspect``: what a data set is made of, and how well it is mixed, as measured and as predicted."""

from corgi2.quality.inspection import Inspection, inspect
from corgi2.quality.measuring import Measurement, measure
from corgi2.quality.mixing import look_at_mixing
from corgi2.quality.prediction import By, raggedness

__all__ = [
    "By",
    "Inspection",
    "Measurement",
    "inspect",
    "look_at_mixing",
    "measure",
    "raggedness",
]

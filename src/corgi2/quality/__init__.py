"""``corgi2 inspect``: what a data set is made of, and how well it is mixed.

`measuring` samples blocks, `prediction` says what its shuffle should have given and what a loader's buffer holds,
`mixing` puts these together, and `inspection` is the command. These are facts about one
data set; `corgi2.advice` compares ways of shuffling it.
"""

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

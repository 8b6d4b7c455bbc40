"""``corgi2 inspect``: what a data set is made of, and how well it is mixed.

`measuring` samples blocks (`blocks` reads them, `labels` finds what they are measured by, `sums` adds up, `estimate`
says what follows from that, `measurement` what it means). `prediction` says what its shuffle should have given and what
a loader's buffer holds, `outcome` compares the two, `content` looks at records without a label, `mixing` puts these
together, `picture` draws it, and `inspection` is the command. These are facts about one data set; `corgi2.advice`
compares ways of shuffling it.
"""

from corgi2.quality.inspection import Inspection, inspect
from corgi2.quality.measurement import OTHERS, is_mixed, named_by
from corgi2.quality.measuring import Measurement, measure
from corgi2.quality.mixing import look_at_mixing
from corgi2.quality.prediction import By, Prediction, held_out_of, predict, raggedness, worst_after_shuffle

__all__ = [
    "OTHERS",
    "By",
    "Inspection",
    "Measurement",
    "Prediction",
    "held_out_of",
    "inspect",
    "is_mixed",
    "look_at_mixing",
    "measure",
    "named_by",
    "predict",
    "raggedness",
    "worst_after_shuffle",
]

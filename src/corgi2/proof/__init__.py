"""``corgi2 verify``: the proof that nothing was lost, repeated or altered.

`comparison` compares two data sets, record by record; `audit` compares a shuffled data set with what its shuffle kept,
and `kept` reads that. Something new that a shuffle keeps is covered in `kept`; something new that has to hold is
checked in `audit`, of one folder, or in `comparison`, of source and result.
"""

from corgi2.proof.audit import Audit
from corgi2.proof.comparison import Verdict, verify

__all__ = ["Audit", "Verdict", "verify"]

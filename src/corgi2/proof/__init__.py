"""``corgi2 verify``: nothing was lost, repeated or altered. Compares two data sets, or one with its shuffle's sums."""

from corgi2.proof.audit import Audit
from corgi2.proof.comparison import Verdict, verify

__all__ = ["Audit", "Verdict", "verify"]

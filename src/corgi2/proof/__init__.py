"""Proof that nothing was lost, repeated or altered: two data sets compared, or one with what its shuffle kept."""

from corgi2.proof.audit import Audit
from corgi2.proof.comparison import Verdict, verify

__all__ = ["Audit", "Verdict", "verify"]

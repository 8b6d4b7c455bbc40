"""What each way of shuffling costs and buys, and which to take."""

from corgi2.advice.recommendation import Advice
from corgi2.advice.request import plan

__all__ = ["Advice", "plan"]

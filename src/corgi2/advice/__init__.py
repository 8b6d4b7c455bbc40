"""What each way of shuffling costs and buys, and which to take."""

from corgi2.advice.request import Asked, quote

__all__ = ["Asked", "quote"]

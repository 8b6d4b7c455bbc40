"""What SGD feels of an order over time: it remembers the last τ examples, and forgets earlier ones."""

import math


class Memory:
    """SGD that remembers τ examples: one k places back has the weight aᵏ, a = e^(−1/τ). The methods are means of aᵏ."""

    __slots__ = ("_rate",)

    def __init__(self, tau: float) -> None:
        if not tau > 0:
            raise ValueError(f"the memory τ must be above 0 examples (got {tau:g})")
        self._rate = 1 / tau

    def over(self, size: float) -> float:
        """What is left after this many examples."""
        return math.exp(-self._rate * size)

    def entering(self, size: float) -> float:
        """Over this many places, the first of which is one step after what came before."""
        return -math.expm1(-self._rate * size) / math.expm1(min(700.0, self._rate)) / size

    def leaving(self, size: float) -> float:
        """Over this many places, the last of which has not aged yet."""
        return math.expm1(-self._rate * size) / math.expm1(-self._rate) / size

    def within(self, size: float) -> float:
        """Over pairs of different places among this many."""
        if size <= 1:
            return 1.0
        gone = -math.expm1(-self._rate)
        return 2 * (1 - gone) / gone * (size + math.expm1(-self._rate * size) / gone) / (size * (size - 1))


def long_run(spread: float, window: float, total: float, tau: float) -> float:
    """R(τ), the variance that SGD with a memory of τ examples feels, over that of independent draws: for windows of
    ``window`` examples, out of ``total`` in an epoch, that are drawn at random and whose H is ``spread``. In an epoch
    every example comes once, so windows make up for each other."""
    if not 1 <= window <= total:
        raise ValueError(f"a window has between one example and the {total:g} there are (got {window:g})")
    memory = Memory(tau)
    same = memory.within(window) * (spread - 1)
    if total <= window:
        return 1 + same
    rest = (total - 1) * memory.within(total) - (window - 1) * memory.within(window)
    return 1 + same - spread / (total - window) * rest

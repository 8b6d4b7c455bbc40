"""Tests fixed before the runs: equivalence by two one-sided t tests, differences by Welch with Holm's correction."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

MARGIN = 0.5
"""Points of accuracy that count as no difference."""
LEVEL = 0.05
UNDECIDED = "undecided"

Values = Sequence[float]


def equivalence(left: Values, right: Values, margin: float = MARGIN) -> float:
    """How likely such values are if the means lie further apart than the margin: below 5 % they are called equal."""
    if _are_constant(left, right):
        return 0.0 if abs(left[0] - right[0]) < margin else 1.0
    return max(_welch(left, right, margin, "greater"), _welch(left, right, -margin, "less"))


def difference(left: Values, right: Values) -> float:
    """How likely such values are if the means are the same (Welch)."""
    if _are_constant(left, right):
        return 1.0 if left[0] == right[0] else 0.0
    return _welch(left, right, 0.0, "two-sided")


def _welch(left: Values, right: Values, shift: float, alternative: str) -> float:
    moments = [(np.mean(values), np.std(values, ddof=1), len(values)) for values in (np.add(left, shift), right)]
    return float(stats.ttest_ind_from_stats(*moments[0], *moments[1], equal_var=False, alternative=alternative).pvalue)


def _are_constant(left: Values, right: Values) -> bool:
    return len(set(left)) == 1 and len(set(right)) == 1


def holm(chances: Sequence[float]) -> list[float]:
    """Corrected for there being several of them."""
    count = len(chances)
    corrected, largest = [0.0] * count, 0.0
    for rank, number in enumerate(np.argsort(chances).tolist()):
        largest = max(largest, min(1.0, (count - rank) * chances[number]))
        corrected[number] = largest
    return corrected


def verdict(equal: float, differs: float, apart: float) -> str:
    """In a word: what the two tests say of a method, whose mean lies so far from the full shuffle's."""
    if equal < LEVEL:
        return "equal"
    if differs < LEVEL:
        return "worse" if apart < 0 else "better"
    return UNDECIDED

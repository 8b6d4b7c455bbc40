"""How good an order is for SGD: H by the gradients of a last layer, and how even its windows are."""

import numpy as np
import numpy.typing as npt

from corgi2.order.simulate import class_counts

Ints = npt.NDArray[np.int64]


def h_of_products(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32], window: int) -> float | None:
    """H of an order by gradients of a last layer, each of which is an outer product of two vectors; None of a network
    whose gradients are all the same, because it is dead."""
    count = len(left)
    mean = left.T @ right / count
    sigma2 = float(((left**2).sum(axis=1) * (right**2).sum(axis=1)).mean() - (mean**2).sum())
    if sigma2 <= 0:
        return None
    apart = [
        float(((left[start : start + window].T @ right[start : start + window] / window - mean) ** 2).sum())
        for start in range(0, count - window + 1, window)
    ]
    return window * float(np.mean(apart)) / sigma2


def spread_of_classes(labels: Ints, classes: int, window: int) -> dict[str, float]:
    """Of the windows of an order: how far the counts of a class lie apart, and how many classes are missing."""
    counts = class_counts(labels, classes, window)
    return {"spread": float(counts.std(axis=0).mean()), "missing": float((counts == 0).sum(axis=1).mean())}

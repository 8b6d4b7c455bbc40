"""How good an order is for SGD: H, by what stands in for an example's gradient, and how even its windows are."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def counts_of(labels: Ints, classes: int, window: int) -> Ints:
    """How many of each class lie in each window of an order; a last one that is short is left out."""
    windows = len(labels) // window
    place = np.arange(windows * window) // window * classes + labels[: windows * window]
    return np.bincount(place, minlength=windows * classes).reshape(windows, classes)


def h_of_labels(labels: Ints, classes: int, window: int) -> float:
    """H of an order by one-hot labels: examples of a window × the mean squared distance of its mean / σ²."""
    shares = np.bincount(labels, minlength=classes) / len(labels)
    apart = counts_of(labels, classes, window) / window - shares
    return float(window * (apart**2).sum(axis=1).mean() / (1 - (shares**2).sum()))


def h_of_products(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32], window: int) -> float:
    """H of an order by gradients of a last layer, each of which is an outer product of two vectors."""
    count = len(left)
    mean = left.T @ right / count
    sigma2 = float(((left**2).sum(axis=1) * (right**2).sum(axis=1)).mean() - (mean**2).sum())
    apart = [
        float(((left[start : start + window].T @ right[start : start + window] / window - mean) ** 2).sum())
        for start in range(0, count - window + 1, window)
    ]
    return window * float(np.mean(apart)) / sigma2


def spread_of_classes(labels: Ints, classes: int, window: int) -> dict[str, float]:
    """Of the windows of an order: how far the counts of a class lie apart, and how many classes are missing."""
    counts = counts_of(labels, classes, window)
    return {"spread": float(counts.std(axis=0).mean()), "missing": float((counts == 0).sum(axis=1).mean())}

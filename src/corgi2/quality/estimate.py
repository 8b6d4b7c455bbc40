"""From the sums of sampled blocks to h_D, its interval, and the largest h_D that any order of the records could have.

The largest: in a block of b records at most min(T, b) are of a class of T records. Hence, in any order,
h_D ≤ b − (b − M)/σ², where M is the mean over records of min(T, b), and σ² the variance of the one-hot vectors; it is
reached if classes fill blocks, or blocks classes. T is estimated for each sampled record without bias, from the
blocks that it is not in, whatever the order. A value that hardly any two records share has M = 1, and h_D is 1 in any
order.
"""

import numpy as np

from corgi2.errors import SourceError
from corgi2.order import RESAMPLES, Indices, draws
from corgi2.quality.measurement import Floats, Heat, Measurement, Reach
from corgi2.quality.sums import Sums, Votes

_TIMES = 1000
_SHOWN = 1000
"""The most classes in a picture."""


def estimate(table: Sums, picks: Indices, blocks: int, records: float | None, seed: int) -> Measurement:
    """The estimate for this many blocks of this many records on average; if None, as many as in the sampled ones."""
    counts, squares, votes = table.counts, table.squares, table.votes()
    products = table.products(votes)
    sampled, b = len(counts), float(counts.mean()) if records is None else records
    sigma2, h = _parameters(counts, products, squares, np.ones((1, sampled)), blocks)
    if sigma2[0] <= 1e-12 * float(squares.sum() / counts.sum()):
        more = "" if sampled == blocks else "; a larger sample may have others"
        raise SourceError(f"all sampled records have the same value: there is no variance, and nothing to mix{more}")
    low = high = float(h[0]) * b
    if sampled < blocks:
        chosen = draws(_TIMES * sampled, sampled, (seed, RESAMPLES)).reshape(_TIMES, sampled)
        times = np.stack([np.bincount(row, minlength=sampled) for row in chosen]).astype(np.float64)
        _, spread = _parameters(counts, products, squares, times, blocks)
        bounds = np.quantile(spread[np.isfinite(spread)], [0.025, 0.975]) * b
        shrink = np.sqrt(1 - sampled / blocks)  # a sample of nearly all leaves little doubt
        low, high = (float(low + (bound - low) * shrink) for bound in bounds)
    value = float(h[0]) * b
    reaches = _reaches(table, votes, blocks, b)
    most = b - sum(b - reach.shared for reach in reaches) / float(sigma2[0])
    return Measurement(
        sigma2=float(sigma2[0]),
        h_D=value,
        h_D_low=min(value, max(0.0, low)),
        h_D_high=max(value, min(b, high)),
        h_D_max=max(value, min(b, most)),
        homogeneity=value / b,
        classes=table.classes,
        blocks=blocks,
        sampled=sampled,
        block_records=b,
        directions=_directions(counts, products),
        silent=tuple(reach for reach in reaches if not reach.tells(b)) if value <= 5 else (),
        by=(*table.labels, *table.features),
        heat=_heat(table, votes, picks) if table.classes else None,
    )


def _reaches(table: Sums, votes: Votes, blocks: int, b: float) -> list[Reach]:
    """The reach of each label."""
    of_label, found = table.of_label(), []
    for number, label in enumerate(table.labels):
        chosen = of_label[votes.kind] == number
        part = Votes(votes.block[chosen], votes.kind[chosen], votes.count[chosen])
        found.append(reach_of(label, part, len(table.counts), blocks, b))
    return found


def reach_of(label: str, votes: Votes, sampled: int, blocks: int, b: float) -> Reach:
    """From the votes for one label in some of the blocks. ``size`` is what each record knows about its class: the count
    in its own block, and what the other sampled blocks say about all others."""
    others = votes.totals()[votes.kind] - votes.count
    size = votes.count + others * ((blocks - 1) / (sampled - 1) if sampled > 1 else 0.0)
    total = votes.count.sum()
    shared = float((votes.count * np.minimum(size, b)).sum() / total)
    meeting = min(1.0, float((votes.count * size).sum() / total) / (blocks * b))
    most = b - (b - shared) / (1 - meeting) if meeting < 1 else 0.0
    return Reach(label, shared, max(0.0, most))


def _directions(counts: Floats, products: Floats) -> float:
    """(tr C)²/tr C² of the covariance C of the blocks' means, by the products of their sums."""
    share = counts / counts.sum()
    means = products / np.outer(counts, counts)
    centre = means @ share
    apart = (means - centre[:, None] - centre + share @ centre) * np.sqrt(np.outer(share, share))
    squared = float((apart**2).sum())
    return max(1.0, float(np.trace(apart)) ** 2 / squared) if squared > 0 else 1.0


def _heat(table: Sums, votes: Votes, picks: Indices) -> Heat:
    """Classes by name, numbers by size."""
    kinds = np.sort(np.argsort(-votes.totals(), kind="stable")[:_SHOWN])
    names = table.names(kinds)
    order = sorted(range(len(names)), key=lambda place: (len(names[place]) * names[place].isdigit(), names[place]))
    rows = np.argsort(picks)
    counts = votes.dense(kinds, len(picks))[rows][:, order]
    return Heat(tuple(names[place] for place in order), tuple(picks[rows].tolist()), counts)


def _parameters(counts: Floats, products: Floats, squares: Floats, times: Floats, blocks: int) -> tuple[Floats, Floats]:
    """σ² and h_D/b̄ of samples of blocks, given how often each block is in a sample: one row per sample."""
    weights, own = times * counts, np.diag(products) / counts
    total = weights.sum(axis=1)
    middle = (times @ products * times).sum(axis=1) / total**2
    between = times @ own / total - middle
    within = times @ (squares - own) / total
    size = len(counts)
    if size < blocks:  # the mean of a sample lies too close to its blocks
        between = between * size / (size - 1) * (blocks - 1) / blocks
    between = np.maximum(between, 0)
    sigma2 = within + between
    with np.errstate(invalid="ignore", divide="ignore"):
        return sigma2, between / sigma2

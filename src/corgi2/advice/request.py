"""``corgi2 plan``: from what a person asks to an advice, with or without a data set at hand."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from corgi2.advice.methods import Means, Shape
from corgi2.advice.prices import NOTHING, Prices, load_prices
from corgi2.advice.probe import probe
from corgi2.advice.recommendation import Advice, advise
from corgi2.advice.shape import scout
from corgi2.arguments import suggesting
from corgi2.dataset import Source
from corgi2.errors import SourceError
from corgi2.host import usable_memory
from corgi2.quality import By
from corgi2.sizes import parse_size
from corgi2.stores import Options, parse_url

BANDWIDTH, LATENCY_MS = 500_000_000, 30.0
"""Assumed of a store that is not at hand."""
_BY_SCHEME = {"s3": "aws", "gs": "gcs", "az": "azure"}


@suggesting
def plan(
    src: str | os.PathLike[str] | None = None,
    *,
    buffer: int | str | None = None,
    online_buffer: int | str = "2GB",
    epochs: int = 10,
    nodes: int = 1,
    label: str | Sequence[str] = (),
    feature: str | Sequence[str] = (),
    sample: int = 64,
    h_d: float | None = None,
    records: int | None = None,
    bytes: int | str | None = None,  # noqa: A002 - as on the command line
    shards: int | None = None,
    prices: str | None = None,
    bandwidth: int | str | None = None,
    latency: float | None = None,
    src_options: Options | None = None,
) -> Advice:
    """Say what every way of shuffling a data set would cost and buy, and which one to take. Touches nothing.

    Args:
        src: The data set. Without one, ``records``, ``bytes`` and ``shards`` describe it.
        buffer: Memory for the offline pass, per node. By default half of what this process may use.
        online_buffer: Memory for the loader, per node.
        epochs: How many will be trained.
        nodes: Machines that shuffle, and that train.
        label: Measure h_D, how badly blocks are mixed, by this tar part, column or JSON key, or by several.
        feature: The same by numbers, or vectors of them.
        sample: How many blocks to measure.
        h_d: h_D, if it is known. Without it, and without a label, the worst is assumed: every block of one kind.
        records: Without ``src``: how many there are.
        bytes: Without ``src``: the size of all shards.
        shards: Without ``src``: how many there are.
        prices: ``aws``, ``gcs``, ``azure``, or a JSON file of your own. By default those of the data set's store.
        bandwidth: Bytes per second, per node. By default measured on ``src``; without it 500 MB.
        latency: Milliseconds. By default measured on ``src``; without it 30.
        src_options: Options for the store (docs/stores.md).
    """
    labels, features = (tuple([given] if isinstance(given, str) else given) for given in (label, feature))
    by, numbers = By(labels, features, sample), {"records": records, "bytes": bytes, "shards": shards}
    if by and h_d is not None:
        raise ValueError("h_d= says what label= and feature= would measure; give one of them")
    means = _Asked(
        usable_memory() // 2 if buffer is None else parse_size(buffer),
        parse_size(online_buffer),
        epochs,
        nodes,
        prices,
        None if bandwidth is None else parse_size(bandwidth),
        latency,
    )
    if src is None:
        missing = [f"{name}=" for name, value in numbers.items() if value is None]
        if missing:
            raise ValueError(f"without a data set, give {', '.join(missing)}, too")
        if by:
            raise ValueError("label= and feature= measure a data set; without one, give h_d=")
        size = parse_size(bytes or 0)
        return advise(Shape(records or 0, size, shards or 0, shards or 0, size, h_d), _means(means, None))
    given = [f"{name}=" for name, value in numbers.items() if value is not None]
    if given:
        raise ValueError(f"the data set says what {', '.join(given)} would; leave out one or the other")
    found = scout(src, means.buffer, by, h_d, src_options)
    return advise(found.shape, _means(means, found.source), found.one, found.two)


class _Asked(NamedTuple):
    """What was said of machines and of the store."""

    buffer: int
    online_buffer: int
    epochs: int
    nodes: int
    prices: str | None
    bandwidth: int | None
    latency: float | None


def _means(asked: _Asked, source: Source | None) -> Means:
    bandwidth, latency = float(BANDWIDTH), LATENCY_MS / 1000
    if source is not None and (asked.bandwidth is None or asked.latency is None):
        bandwidth, latency = probe(source)
    return Means(
        buffer=asked.buffer,
        online_buffer=asked.online_buffer,
        epochs=asked.epochs,
        nodes=asked.nodes,
        prices=_prices(asked.prices, source),
        bandwidth=bandwidth if asked.bandwidth is None else asked.bandwidth,
        latency=latency if asked.latency is None else asked.latency / 1000,
    )


def _prices(name: str | None, source: Source | None) -> Prices:
    if name is not None:
        return load_prices(name)
    if source is None:
        return load_prices("aws")
    if source.store.is_local:
        return NOTHING
    scheme = parse_url(source.url).scheme
    if scheme not in _BY_SCHEME:
        raise SourceError(
            f"no prices are known for {scheme}://; give prices='aws', 'gcs', 'azure' or a file of your own"
        )
    return load_prices(_BY_SCHEME[scheme])

"""``corgi2 plan``: from what the user asks to the advice, with or without a data set at hand."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from corgi2.advice.command import Plain, option_words
from corgi2.advice.prices import NOTHING, Prices, load_prices, node_price, traffic_price
from corgi2.advice.probe import Probed, probe
from corgi2.advice.recommendation import Advice, advise
from corgi2.advice.shape import scout
from corgi2.advice.situation import Means, Shape
from corgi2.arguments import suggesting
from corgi2.dataset import Source
from corgi2.errors import SourceError
from corgi2.host import usable_memory
from corgi2.quality import By
from corgi2.sizes import parse_size
from corgi2.stores import Options, parse_url, without_secrets

BANDWIDTH, LATENCY_MS = 500_000_000, 30.0
"""Assumed for a store that is not at hand."""
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
    node_price: float | str | None = None,
    traffic_price: float | str | None = None,
    bandwidth: int | str | None = None,
    latency: float | None = None,
    src_options: Options | None = None,
) -> Advice:
    """Say what every way of shuffling a data set would cost and buy, and which one to choose. Touches nothing.

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
        node_price: The price of a machine that shuffles: dollars per hour, or its type, such as ``m7i.4xlarge``.
        traffic_price: The price of what is read: dollars per GB, or ``other-region`` or ``internet``. By default
            nothing, as within a region.
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
        node_price,
        traffic_price,
        src_options or {},
        buffer is not None,
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
    return advise(found.shape, _means(means, found.source), found.one, found.two, ranged=found.ranged)


class _Asked(NamedTuple):
    """What was given about machines and about the store."""

    buffer: int
    online_buffer: int
    epochs: int
    nodes: int
    prices: str | None
    bandwidth: int | None
    latency: float | None
    node_price: float | str | None
    traffic_price: float | str | None
    options: Options
    knows_buffer: bool


def _means(asked: _Asked, source: Source | None) -> Means:
    prices = _prices(asked.prices, source)
    hourly, machine = (None, "") if asked.node_price is None else node_price(asked.node_price, prices)
    probed = _probed(asked, source)
    return Means(
        buffer=asked.buffer,
        online_buffer=asked.online_buffer,
        epochs=asked.epochs,
        nodes=asked.nodes,
        prices=prices,
        bandwidth=probed.bandwidth,
        latency=probed.latency,
        how=probed.how,
        node_price=hourly,
        machine=machine,
        traffic_price=traffic_price(asked.traffic_price, prices),
        options=option_words(asked.options),
        knows_buffer=asked.knows_buffer,
        kept={name: value for name, value in without_secrets(asked.options).items() if isinstance(value, Plain)},
    )


def _probed(asked: _Asked, source: Source | None) -> Probed:
    """The values given, and otherwise what the store shows."""
    said = asked.bandwidth, None if asked.latency is None else asked.latency / 1000
    if None not in said:
        return Probed(float(said[0] or 0), float(said[1] or 0), "as given")
    found = Probed(float(BANDWIDTH), LATENCY_MS / 1000, "assumed") if source is None else probe(source)
    bandwidth, latency = (other if own is None else float(own) for own, other in zip(said, found[:2], strict=True))
    return Probed(bandwidth, latency, found.how if said == (None, None) else f"{found.how}, if not given")


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

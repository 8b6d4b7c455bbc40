"""``corgi2 plan``: from what a person asks to an advice, with or without a data set at hand."""

import os
from dataclasses import dataclass

from corgi2.advice.methods import Means, Offline, Shape
from corgi2.advice.picture import plan_page
from corgi2.advice.prices import NOTHING, Prices, load_prices
from corgi2.advice.probe import probe
from corgi2.advice.recommendation import Advice, advise
from corgi2.advice.shape import scout
from corgi2.dataset import Source
from corgi2.errors import SourceError
from corgi2.host import usable_memory
from corgi2.quality import By
from corgi2.stores import Options, parse_url

BANDWIDTH, LATENCY_MS = 500_000_000, 30.0
"""Assumed of a store that is not at hand."""
_BY_SCHEME = {"s3": "aws", "gs": "gcs", "az": "azure"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What may be said on the command line."""

    buffer: int | None = None
    online_buffer: int = 2_000_000_000
    epochs: int = 10
    nodes: int = 1
    label: tuple[str, ...] = ()
    feature: tuple[str, ...] = ()
    sample: int = 64
    h_d: float | None = None
    records: int | None = None
    size: int | None = None
    shards: int | None = None
    prices: str | None = None
    bandwidth: int | None = None
    latency: float | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """An advice, and the passes it was made from."""

    advice: Advice
    one: Offline | None
    two: Offline | None

    def as_page(self) -> str:
        return plan_page(self.advice, self.one, self.two)


def quote(src: str | os.PathLike[str] | None, asked: Asked, options: Options | None = None) -> Quote:
    """Compare all methods for a data set, or for numbers that describe one."""
    buffer = asked.buffer if asked.buffer is not None else usable_memory() // 2
    numbers = {"--records": asked.records, "--bytes": asked.size, "--shards": asked.shards}
    by = By(asked.label, asked.feature, asked.sample)
    if by and asked.h_d is not None:
        raise ValueError("--h-d says what --label and --feature would measure; give one of them")
    if src is None:
        missing = [name for name, value in numbers.items() if value is None]
        if missing:
            raise ValueError(f"without SRC, give {', '.join(missing)}, too")
        if by:
            raise ValueError("--label and --feature measure SRC; without one, give --h-d")
        records, size, shards = asked.records or 0, asked.size or 0, asked.shards or 0
        shape = Shape(records, size, shards, shards, size, asked.h_d)
        return Quote(advise(shape, _means(asked, buffer, None)), None, None)
    given = [name for name, value in numbers.items() if value is not None]
    if given:
        raise ValueError(f"SRC says what {', '.join(given)} would; leave them out, or SRC")
    found = scout(src, buffer, by, asked.h_d, options)
    means = _means(asked, buffer, found.source)
    return Quote(advise(found.shape, means, found.one, found.two), found.one, found.two)


def _means(asked: Asked, buffer: int, source: Source | None) -> Means:
    bandwidth, latency = float(BANDWIDTH), LATENCY_MS / 1000
    if source is not None and (asked.bandwidth is None or asked.latency is None):
        bandwidth, latency = probe(source)
    return Means(
        buffer=buffer,
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
        raise SourceError(f"no prices are known for {scheme}://; give --prices aws, gcs, azure or a file of your own")
    return load_prices(_BY_SCHEME[scheme])

"""A data set as the theory sees it, and h of its blocks after offline passes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """A data set as the theory sees it."""

    count: int
    """N, the number of blocks."""
    examples: float
    """b, the examples in each block; the mean, if they differ."""
    h: float
    """h_D, between 0 and b."""
    ragged: float = 0.0
    """The variance of the blocks' sizes over the square of their mean."""

    def __post_init__(self) -> None:
        if not (self.count >= 1 and self.examples >= 1 and self.ragged >= 0):
            raise ValueError(f"a data set has at least one block of one example (got {self.count} of {self.examples})")
        if not 0 <= self.h <= self.examples:
            raise ValueError(f"h_D lies between 0 and the {self.examples:g} examples of a block (got {self.h:g})")

    @property
    def total(self) -> float:
        """m, the number of all examples."""
        return self.count * self.examples

    def check(self, n: float, name: str = "n") -> None:
        if not 1 <= n <= self.count:
            raise ValueError(f"{name} lies between 1 and the {self.count} blocks there are (got {n})")


def between_groups(data: Blocks, n: float) -> float:
    """A: what is left of h between groups of n random blocks. Approximate if sizes differ: large blocks weigh more."""
    data.check(n)
    share = (1 + data.ragged) / (n + data.ragged)
    return data.h * share * (data.count - n) / (data.count - 1) if data.count > 1 else 0.0


def within_groups(data: Blocks, n: float, written: float | None = None) -> float:
    """W: what a shuffle within groups adds. Blocks of ``written`` examples are cut from them; of b, if None."""
    size, new = n * data.examples, written_examples(data, n, written)
    if size <= 1:
        return 0.0
    return (size - new) / (size - 1) * (1 - between_groups(data, n) / data.examples)


def written_examples(data: Blocks, n: float, written: float | None) -> float:
    """The examples in each new block: as in the old ones, unless a number is given."""
    if written is None:
        return data.examples
    if not 1 <= written <= n * data.examples:
        most = n * data.examples
        raise ValueError(f"new blocks have between 1 example and the {most:g} of a group (got {written:g})")
    return written


def h_after_pass(data: Blocks, n: int, written: float | None = None) -> float:
    """h' after an offline pass without replacement: exact."""
    scale = written_examples(data, n, written) / data.examples
    return between_groups(data, n) * scale + within_groups(data, n, written)


def h_of_parts(data: Blocks, parts: int) -> float:
    """h of blocks that are cut into equal parts, if each block lies in random order within itself."""
    b = data.examples
    if not 1 <= parts <= b:
        raise ValueError(f"a block of {b:g} examples has between 1 and {b:g} parts (got {parts})")
    return data.h / parts + ((1 - data.h / b) * (b - b / parts) / (b - 1) if b > 1 else 0.0)


def h_dealt(data: Blocks, n: int) -> float:
    """h' if each new block took equally many examples of each block of its group."""
    b = data.examples
    if b <= 1:
        return between_groups(data, n)
    return between_groups(data, n) + (1 - data.h / b) * (b - b / n) / (b - 1)


def h_after_passes(data: Blocks, n: int, passes: int) -> float:
    """h' after several passes whose groups are drawn anew each time; the map is affine, so this is exact."""
    if passes < 1:
        raise ValueError(f"there is at least one pass (got {passes})")
    for _ in range(passes):
        data = Blocks(data.count, data.examples, min(data.examples, h_after_pass(data, n)))
    return data.h


def h_full(data: Blocks) -> float:
    """h of blocks of a full shuffle."""
    return (data.total - data.examples) / (data.total - 1) if data.total > 1 else 0.0

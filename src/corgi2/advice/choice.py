"""Which way of shuffling to choose, and why. A new piece of advice goes here.

Only ways that corgi2 runs are ever recommended. Among those that experiments cannot tell apart (docs/results.md), the
one with the fewest passes is chosen, then the one with the fewest requests: none is chosen if another one is as good
and costs no more in any respect.
"""

from collections.abc import Iterator

from corgi2.advice.command import exact_size
from corgi2.advice.methods import Kind, Method
from corgi2.advice.situation import Shape
from corgi2.quality import OTHERS, is_mixed, named_by
from corgi2.sizes import format_number

ENOUGH, VISIBLE, FELT = 2.0, 5.0, 4.0
"""The ratio to a full shuffle's R that counts as equal. The H up to which experiments show no loss (docs/results.md),
and the R that random windows of that H have: 1 + 4·2/e, with a memory of one window."""

_CLOSE, _TENTH = 1.2, 1.1
"""What counts as equally fast; what counts as equally cheap, and as equally good if all ways are bad."""


def tier(method: Method) -> int:
    """0: as good as a full shuffle, as far as experiments tell; 1: neither a loss nor equality seen; 2: the rest."""
    if method.felt <= ENOUGH:
        return 0
    return 1 if method.R <= FELT else 2


def is_as_good(one: Method, other: Method) -> bool:
    """Whether one is as good as the other, as far as experiments can tell."""
    if tier(one) != tier(other):
        return tier(one) < tier(other)
    return tier(one) < 2 or one.R <= _TENTH * other.R


def choose(shape: Shape, methods: tuple[Method, ...]) -> tuple[Method, str]:
    """The way to choose, and why."""
    pile = next((method for method in methods if method.way.kind is Kind.CORGIPILE), None)
    if shape.sibling:
        order = next(method for method in methods if method.way.kind is Kind.SEQUENTIAL)
        return order, f"this was held out for validation, and {shape.sibling} is the rest: nothing is to be shuffled"
    if pile is not None and (why := _is_enough(shape, pile)):
        return pile, why
    choices = [method for method in methods if not method.way.kind.is_reference]
    if not choices:
        order = next(method for method in methods if method.way.kind is Kind.SEQUENTIAL)
        return order, "nothing that corgi2 runs is left with these buffers: the notes say why, and what would do"
    best = _least(choices)
    return best, _reason(best)


def _is_enough(shape: Shape, pile: Method) -> str:
    """Why nothing needs to be done before training, if so."""
    sure = shape.h_D_high is None or shape.h_D_high <= VISIBLE
    if shape.is_shuffled and not shape.contradiction and (shape.h_D is None or tier(pile) < 2):
        return "corgi2 has already mixed your data: just train, with even picks"
    if sure and shape.h_D is not None and is_mixed(shape.h_D, shape.block_records):
        by, others = (f" {named_by(shape.by)}", f"; {OTHERS}") if shape.by else ("", "")
        return f"your data is already mixed{by} (h_D = {shape.h_D:.3g}): do nothing; any loader will do{others}"
    if pile.window * pile.block_bytes >= shape.bytes:
        return "the online buffer holds all of the data: the loader alone shuffles it fully"
    return ""


def _least(choices: list[Method]) -> Method:
    """Among the best available: at most a tenth dearer than the cheapest, then the least of everything, in turn."""
    reached = min(map(tier, choices))
    good = [method for method in choices if tier(method) == reached]
    if reached == 2:
        least = min(method.R for method in good)
        good = [method for method in good if _TENTH * least >= method.R]
    good = [method for method in good if not _is_slow(method, good)] or good
    limit = _TENTH * min(method.cost_usd for method in good)
    cheap = [method for method in good if method.cost_usd <= limit]
    return min(cheap, key=_burden)


def _is_slow(method: Method, good: list[Method]) -> bool:
    """Whether every epoch would take longer because its blocks are so small, and need not: there is another way."""
    is_cut = method.way.kind is Kind.CORGIPILE and method.way.cut_bytes is not None
    return is_cut and method.online_hours > _CLOSE * min(each.online_hours for each in good)


def _burden(method: Method) -> tuple[float, ...]:
    """Exact numbers, the most important first; on a tie in all of them, the loader's default picks win."""
    exact = method.way.passes, method.requests, method.cost_usd, method.hours
    return *exact, method.way.picks != "even", method.felt


def _reason(method: Method) -> str:
    times = f"what SGD feels over time, R, is {method.felt:.2f} times that of a full shuffle"
    if tier(method) == 1:
        times = f"R = {method.R:.2g}, no more than the {FELT:g} up to which experiments show no loss"
    if tier(method) == 2:
        return (
            f"nothing here comes near a full shuffle; this does best (R = {format_number(method.R)}). A larger buffer, "
            "or smaller blocks, would help more"
        )
    if method.way.kind is Kind.CORGIPILE:
        cut = " with the blocks of a new index" if method.way.cut_bytes is not None else ""
        return f"the loader's buffer alone is enough{cut}: {times}"
    cut = "cut smaller blocks: " if method.way.cut_bytes is not None else ""
    return f"{cut}{times}; of all ways that do as well, it takes the fewest passes, then the fewest requests"


def notes_on(shape: Shape, methods: tuple[Method, ...]) -> list[str]:
    """What else somebody should know who reads the table."""
    return [*_notes_on_mixing(shape, methods), *_notes_on_methods(shape, methods)]


def _notes_on_mixing(shape: Shape, methods: tuple[Method, ...]) -> Iterator[str]:
    is_own, is_asked = shape.is_shuffled and not shape.sibling, bool(shape.by)
    if shape.h_D is None and not (shape.is_shuffled or shape.sibling):
        how = "" if is_asked else "; h_d= says what it is" if shape.url == "SRC" else "; label= measures it"
        yield f"h_D is not known, and the worst is assumed: every block of one kind{how}"
    if shape.contradiction:
        yield f"the data was shuffled by corgi2, but {shape.contradiction}: has it been changed since?"
    if is_own and shape.h_D is None and not is_asked:
        yield "the data was written by corgi2; label= measures how well it is mixed"
    pile = next((method for method in methods if method.way.kind is Kind.CORGIPILE), None)
    if is_own and pile is not None and tier(pile) == 2:
        most = " at the worst" if shape.h_D is None else ""
        yield (
            f"the data was mixed by corgi2, but with this online buffer R is {format_number(pile.R)}{most}, above the "
            f"{FELT:g} up to which experiments show no loss: a larger one would help"
        )
    if shape.h_D_high is not None and shape.h_D_high > VISIBLE >= (shape.h_D or 0):
        yield "so few blocks do not tell whether they are mixed: give a larger sample"


def _notes_on_methods(shape: Shape, methods: tuple[Method, ...]) -> list[str]:
    notes = []
    by_kind = {method.way.kind: method for method in methods}
    access, order = by_kind[Kind.RANDOM_ACCESS], by_kind[Kind.SEQUENTIAL]
    if shape.is_local and shape.reads_records and access.online_hours <= _CLOSE * order.online_hours:
        notes.append(
            "this disk reads single records about as fast as whole shards: a map-style data set of your own, which "
            "reads record by record, with torch's RandomSampler needs no pass at all; corgi2 has none"
        )
    ranges = next((each.way.range_bytes for each in methods if each.way.range_bytes is not None), None)
    if ranges is not None and not shape.knows_ranges:
        notes.append(
            "with ranges, the reading that finds where they begin is counted, and requests are estimated; an index "
            f"with block_size='{exact_size(ranges // 4)}' has it behind it, and makes them exact"
        )
    if not all(method.is_exact for method in methods):
        notes.append("~ is from a closed form, which is off by up to 20 % if blocks or groups are unequal")
    return notes

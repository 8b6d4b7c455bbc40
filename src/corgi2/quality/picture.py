"""The page that ``inspect`` writes."""

from collections.abc import Sequence

from corgi2.pages import heat_section, page
from corgi2.quality.measuring import Measurement
from corgi2.sizes import format_number


def inspect_page(title: str, text: str, shown: Sequence[tuple[str, Measurement, str]]) -> str:
    """Blocks × classes of one data set, or of several, such as before and after; each with its name and a verdict."""
    if any(measured.heat is None for _, measured, _ in shown):
        raise ValueError("a heat map needs classes: give label=")
    sections = []
    for name, measured, verdict in shown:
        if measured.heat is not None:
            heat = measured.heat
            about = (
                "A row is a block, a column a class; the stronger the colour, the more of the block's records are of "
                f"the class. h_D = {format_number(measured.h_D)} {measured.by_text}, of at most "
                f"{format_number(measured.block_records)}: {verdict}."
            )
            sections.append(heat_section(name, about, heat.classes, heat.blocks, heat.counts))
    return page(title, [], sections, code=text)

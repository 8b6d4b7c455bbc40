"""Draws why.svg: where the examples of each shard land in the order of training. Run: python docs/figures/why.py"""

from pathlib import Path

from corgi2.order.permutations import Indices
from corgi2.order.simulate import Layout, corgi2, corgipile, sliding_window

LAYOUT = Layout(blocks=25, examples=24, buffer=5)
COUNT = LAYOUT.total
PANEL, GAP, TOP = 260, 30, 44


def panel(order: Indices, place: int, title: str) -> list[str]:
    left = place * (PANEL + GAP)
    dots = [
        f'<circle cx="{left + position / COUNT * PANEL:.1f}" cy="{TOP + (record / COUNT) * PANEL:.1f}" r="1.6"/>'
        for position, record in enumerate(order.tolist())
    ]
    frame = f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{PANEL}" fill="none" stroke="#888"/>'
    return [
        f'<text x="{left}" y="{TOP - 14}" font-size="15">{title}</text>',
        frame,
        '<g fill="#0072b2">',
        *dots,
        "</g>",
    ]


def main() -> None:
    orders = [
        (sliding_window, "shuffle buffer, as most loaders"),
        (corgipile, "random shards, CorgiPile"),
        (corgi2, "corgi2: shards mixed offline first"),
    ]
    panels = [panel(order(LAYOUT, 0, 0), place, title) for place, (order, title) in enumerate(orders)]
    width, height = 3 * PANEL + 2 * GAP, TOP + PANEL + 40
    caption = (
        f'<text x="0" y="{height - 12}" font-size="13">across: the order in which SGD sees the examples; '
        f"down: where they lie in storage. The buffer holds {LAYOUT.buffer} of {LAYOUT.blocks} shards in each.</text>"
    )
    body = "\n".join(line for lines in panels for line in lines)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-4 0 {width + 8} {height}" font-family="sans-serif">'
    background = f'<rect x="-4" width="{width + 8}" height="{height}" fill="#fff"/>'
    Path(__file__).with_name("why.svg").write_text("\n".join([head, background, body, caption, "</svg>\n"]))


if __name__ == "__main__":
    main()

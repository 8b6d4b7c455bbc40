"""Draws why.svg: where the examples of each shard land in the order of training. Run: python docs/figures/why.py"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from corgi2.plan import permutation

SHARDS, RECORDS, BUFFER = 25, 24, 5
COUNT = SHARDS * RECORDS
PANEL, GAP, TOP = 260, 30, 44

Order = npt.NDArray[np.int64]


def sliding_window(size: int) -> Order:
    """A shuffle buffer as most loaders have it: the next example is a random one of those that wait."""
    choices = permutation(COUNT, (1, 1)) % size
    waiting, order = list(range(size)), []
    for step in range(COUNT):
        pick = int(choices[step]) % len(waiting)
        order.append(waiting[pick])
        waiting[pick] = waiting[-1]
        waiting.pop()
        if size + step < COUNT:
            waiting.append(size + step)
    return np.array(order)


def in_groups(shards: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.int64]:
    """Random groups of shards, each shuffled: one half of Corgi², offline as online."""
    groups = shards[permutation(SHARDS, (2, key))].reshape(-1, BUFFER * RECORDS)
    mixed = [group[permutation(len(group), (3, key, number))] for number, group in enumerate(groups)]
    return np.concatenate(mixed).reshape(SHARDS, RECORDS)


def panel(order: Order, place: int, title: str) -> list[str]:
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
    stored = np.arange(COUNT).reshape(SHARDS, RECORDS)
    panels = [
        panel(sliding_window(BUFFER * RECORDS), 0, "shuffle buffer, as most loaders"),
        panel(in_groups(stored, 0).ravel(), 1, "random shards, CorgiPile"),
        panel(in_groups(in_groups(stored, 0), 1).ravel(), 2, "corgi2: shards mixed offline first"),
    ]
    width, height = 3 * PANEL + 2 * GAP, TOP + PANEL + 40
    caption = (
        f'<text x="0" y="{height - 12}" font-size="13">across: the order in which SGD sees the examples; '
        f"down: where they lie in storage. The buffer holds {BUFFER} of {SHARDS} shards in each.</text>"
    )
    body = "\n".join(line for lines in panels for line in lines)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-4 0 {width + 8} {height}" font-family="sans-serif">'
    background = f'<rect x="-4" width="{width + 8}" height="{height}" fill="#fff"/>'
    Path(__file__).with_name("why.svg").write_text("\n".join([head, background, body, caption, "</svg>\n"]))


if __name__ == "__main__":
    main()

"""Draws rounds.svg: which ranges of which blocks each group takes. Run: python docs/figures/rounds.py"""

from pathlib import Path

import numpy as np

from corgi2.order import Drawing

BLOCKS, RANGES, TAKEN = 12, 4, 6
CELL, LEFT, TOP, RIGHT = 30, 90, 90, 300
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#8fd6bd", "#a05195", "#d9a5d0")


def main() -> None:
    block = np.repeat(np.arange(BLOCKS), RANGES)
    groups, _ = Drawing(3, 1).groups_in_rounds(np.ones(len(block), np.int64), block, TAKEN)
    owner = np.empty(len(block), np.int64)
    for number, group in enumerate(groups):
        owner[group] = number
    cells = []
    for place, number in enumerate(owner.tolist()):
        x, y = LEFT + place % RANGES * (CELL + 2), TOP + place // RANGES * (CELL - 8)
        cells.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL - 12}" fill="{COLOURS[number]}"/>')
    rows = [
        f'<text x="{LEFT - 12}" y="{TOP + row * (CELL - 8) + 14}" text-anchor="end">block {row + 1}</text>'
        for row in range(BLOCKS)
    ]
    made = []
    for number, group in enumerate(groups):
        per_round = len(groups) // RANGES
        y = TOP + number * 34 + number // per_round * 8
        taken = ", ".join(str(each) for each in sorted(block[group] + 1))
        made.append(f'<rect x="{RIGHT}" y="{y}" width="{CELL}" height="{CELL - 12}" fill="{COLOURS[number]}"/>')
        made.append(
            f'<text x="{RIGHT + CELL + 10}" y="{y + 14}">round {number // per_round + 1}, group '
            f"{number % per_round + 1}: a range each of blocks {taken}</text>"
        )
    height = TOP + max(BLOCKS * (CELL - 8), len(groups) * 34 + RANGES * 8) + 20
    heads = [
        f'<text x="{LEFT}" y="{TOP - 16}" font-weight="bold">what lies in storage</text>',
        f'<text x="{RIGHT}" y="{TOP - 16}" font-weight="bold">what is shuffled together</text>',
        f'<text x="10" y="20">{BLOCKS} blocks of {RANGES} ranges; memory for {TAKEN} ranges.</text>',
        '<text x="10" y="40">A round takes one range of every block; '
        "a window, one new block of every group of a round.</text>",
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        *heads,
        *rows,
        *cells,
        *made,
        "</svg>",
    ]
    Path(__file__).with_suffix(".svg").write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()

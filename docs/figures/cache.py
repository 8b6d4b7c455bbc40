"""Draws cache.svg: which node keeps which block, and what two epochs fetch. Run: python docs/figures/cache.py"""

from pathlib import Path

import numpy as np

from corgi2.order import Rules, World, deal, epoch_rest

GROUPS, EACH, NODES = 4, 6, (1, 1)
CELL, LEFT, TOP = 26, 150, 70
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a05195")


def main() -> None:
    blocks = GROUPS * EACH
    group, world = np.repeat(np.arange(GROUPS), EACH), World(len(NODES), 1, GROUPS, 1, NODES)
    parts, y = [], TOP
    for epoch in range(2):
        parts.append(f'<text x="10" y="{y - 14}" font-weight="bold">epoch {epoch + 1}</text>')
        what = "every block comes from the store once, and stays" if epoch == 0 else "the same blocks, in another order"
        parts.append(f'<text x="{LEFT}" y="{y - 14}">{what}</text>')
        dealt = deal(epoch_rest(np.full(blocks, 10), group[:, None], Rules(2), epoch), world, Rules(2))
        for node in range(len(NODES)):
            own = dealt.block[dealt.reader == node].tolist()
            parts.append(f'<text x="{LEFT - 12}" y="{y + 18}" text-anchor="end">node {node + 1}</text>')
            for place, block in enumerate(own):
                x = LEFT + place * (CELL + 2) + place // (GROUPS // len(NODES)) * 8
                parts.append(_cell(x, y, block, COLOURS[group[block]], epoch == 0))
            y += CELL + 8
        fetched = f"{blocks} requests to the store" if epoch == 0 else "0 requests to the store"
        parts.append(f'<text x="{LEFT}" y="{y + 10}" fill="#555">{fetched}</text>')
        y += 70
    heads = [
        f'<text x="10" y="22">{blocks} blocks of {GROUPS} offline groups (colours), two nodes. '
        "A window, over both nodes, has one block of every group.</text>",
    ]
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {y - 30}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        *heads,
        *parts,
        "</svg>",
    ]
    Path(__file__).with_suffix(".svg").write_text("\n".join(svg) + "\n")


def _cell(x: int, y: int, block: int, colour: str, is_fetched: bool) -> str:
    """A block: outlined if it is fetched, filled if it lies on the node's disk."""
    fill, ink = ("white", colour) if is_fetched else (colour, "white")
    box = f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="{colour}" stroke-width="2"/>'
    name = f'<text x="{x + CELL / 2}" y="{y + 17}" text-anchor="middle" font-size="11" fill="{ink}">{block + 1}</text>'
    return box + name


if __name__ == "__main__":
    main()

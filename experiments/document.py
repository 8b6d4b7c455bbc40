"""docs/results.md: its tables come from docs/results, between marks, so that no number is typed in by hand.

``python -m experiments.document`` fills them in.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments import images
from experiments.results import FOLDER, markdown
from experiments.show import gap_table, image_table

PAGE = Path("docs/results.md")


def _figure1(found: Any) -> str:
    return markdown(["order", "χ²/df"], [[name, f"{value:.3g}"] for name, value in found["uniformity"].items()])


def _theorem1(found: Any) -> str:
    rows = []
    for name in dict.fromkeys(point["method"] for point in found["points"]):
        some = [point for point in found["points"] if point["method"] == name]
        ratios = [point["measured"] / point["predicted"] for point in some]
        furthest = max(abs(point["measured"] - point["predicted"]) / point["error"] for point in some)
        span = f"{min(point['predicted'] for point in some):.3g} … {max(point['predicted'] for point in some):.3g}"
        rows.append([name, str(len(some)), span, f"{min(ratios):.3f} … {max(ratios):.3f}", f"{furthest:.1f}"])
    head = ["", "data sets", "predicted", "measured / predicted", "furthest, in standard errors"]
    return markdown(head, rows)


def _table1(found: Any) -> str:
    rows = [
        [row["method"], *(f"{row[part][how]:,}" for part in ("offline", "online") for how in ("counted", "formula"))]
        for row in found["rows"]
    ]
    return markdown(["method", "offline, counted", "formula", "online, counted", "formula"], rows)


def _theorem2(found: Any) -> str:
    rows = []
    for how in dict.fromkeys(point["how"] for point in found["points"]):
        for method in dict.fromkeys(point["method"] for point in found["points"]):
            some = [point for point in found["points"] if (point["how"], point["method"]) == (how, method)]
            ratios = np.array([point["gap_ratio"] / point["leading_ratio"] for point in some])
            terms = [point["leading_ratio"] for point in some]
            doubt = 2 * float(np.mean([point["error"] / point["leading_ratio"] for point in some]))
            middle = float(np.exp(np.log(ratios).mean()))
            rows.append(
                [
                    how,
                    method,
                    f"{min(terms):.2f} … {max(terms):.2f}",
                    f"{middle:.2f}",
                    f"{ratios.min():.2f} … {ratios.max():.2f}",
                    f"± {doubt:.2f}",
                ]
            )
    relation = "(gap / full) / (leading term / full), mean"
    return markdown(["buffers", "order", "leading term / full", relation, "from … to", "2 standard errors"], rows)


def _figure5(found: Any) -> str:
    methods = list(dict.fromkeys(point["method"] for point in found["points"]))
    rows = []
    for share, b, n in dict.fromkeys((point["buffer"], point["b"], point["n"]) for point in found["points"]):
        cells = [f"{share:.2%}", str(b), str(n)]
        for method in methods:
            (point,) = (
                point
                for point in found["points"]
                if (point["buffer"], point["b"], point["method"]) == (share, b, method)
            )
            cells.append(f"{point['H']:.3g}: {point['accuracy']:.2f} ± {point['deviation']:.2f}")
        rows.append(cells)
    return markdown(["buffer", "b", "n", *(f"{method}, H: % ± sd" for method in methods)], rows)


def _passes(found: Any) -> str:
    rows = [
        [row["data"], row["arm"]]
        + [f"{row[key]:.1f}" for key in ("seconds", "cpu_seconds")]
        + [f"{row[key]:,}" for key in ("reads", "writes")]
        for row in found["rows"]
    ]
    return markdown(["data", "order (b, n)", "seconds", "CPU s", "reads", "writes"], rows)


_GLANCE = (images.PILE, images.RANDOM, images.EVEN, images.ROUNDS, images.TWICE)


def _glance(found: Any) -> str:
    """By data set and shape: how far each method is from a full shuffle, and what the tests say of it."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for name, arms in found["rows"].items():
        for row in arms:
            match = re.fullmatch(r"(.*) (\(\d+, \d+\))", row["arm"])
            if match and match[1] in _GLANCE:
                h = f"{row['H_labels']:.{0 if row['H_labels'] >= 10 else 1}f}"
                rows.setdefault((name, match[2]), {})[match[1]] = f"{row['apart']:+.1f} ({row['verdict']}; H {h})"
    shown = [method for method in _GLANCE if any(method in cells for cells in rows.values())]
    ordered = sorted(rows.items(), key=_by_size)
    return markdown(
        ["data", "(b, n)", *shown],
        [[*shape, *(cells.get(method, "") for method in shown)] for shape, cells in ordered],
    )


def _by_size(item: tuple[tuple[str, str], Any]) -> tuple[str, int]:
    (name, shape), _ = item
    return name, int(shape[1:].partition(",")[0])


def _machine(found: Any) -> str:
    size = found["machine"]
    return f"{size['processors']} processors, {size['memory_gb']} GB"


TABLES: dict[str, Callable[[Any], str]] = {
    "accuracy-against-h": _glance,
    "figure1": _figure1,
    "theorem1": _theorem1,
    "table1": _table1,
    "theorem2": _theorem2,
    "passes": _passes,
    "figure5": _figure5,
    "cifar10": lambda found: image_table(found["rows"]),
    "fashion-mnist": lambda found: image_table(found["rows"]),
    "tiny-imagenet": lambda found: image_table(found["rows"]),
    "gaps": lambda found: gap_table(found["rows"]),
}


def filled(text: str, folder: Path) -> str:
    """The page with the tables of a folder; what was not run yet has none."""
    for name, table in TABLES.items():
        file = folder / f"{name}.json"
        if not file.exists():
            continue
        found = json.loads(file.read_text())
        seeds = f"; {found['seeds']} seeds" if "seeds" in found else ""
        content = f"{table(found)}\n\n`{found['command']}`{seeds}; {_machine(found)}"
        mark = f"<!-- {name} -->\n"
        if text.count(mark) != 2:
            raise ValueError(f"docs/results.md has no place for {name}")
        text = re.sub(f"{mark}.*?{mark}", lambda _, c=content, m=mark: f"{m}\n{c}\n\n{m}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(), FOLDER))


if __name__ == "__main__":
    main()

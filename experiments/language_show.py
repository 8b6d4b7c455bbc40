"""What the language models of `experiments.language` learned: a table and a picture.

``python -m experiments.language_show`` reads ``.data/runs`` and writes docs/results/language.json and language.svg;
``--from docs/results`` draws again from what was published.

The tests were fixed before the runs: an arm is equal if its mean loss lies within 0.5 % of the full shuffle's (two
one-sided Welch tests at 5 %), and worse or better by Welch's test, corrected after Holm. Where both hold, both
are said.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.language import ARMS, TUNED, Protocol, best_rate
from experiments.results import markdown, parser, publish, style
from experiments.runs import Run, kept
from experiments.significance import LEVEL, UNDECIDED, difference, equivalence, holm

FULL = ARMS[0].name
MARGIN = 0.005
"""Of the full shuffle's loss: what counts as no difference."""

Row = dict[str, Any]


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """A row per arm, at the rate that was chosen for it."""
    found = {arm.name: _chosen(runs, arm.name) for arm in ARMS}
    full = [run["loss"] for run in found[FULL]]
    rows = [_row(name, some, full) for name, some in found.items() if len(some) > 1 and len(full) > 1]
    compared = [row for row in rows if row["arm"] != FULL]
    for row, corrected in zip(compared, holm([row["p_differs"] for row in compared]), strict=True):
        row["p_differs"] = corrected
        row["verdict"] = verdict(row["p_equal"], corrected, row["apart"])
    return rows


def verdict(equal: float, differs: float, apart: float) -> str:
    """Both outcomes, where both hold. More loss is worse."""
    told = ["equal"] if equal < LEVEL else []
    if differs < LEVEL:
        told.append("worse" if apart > 0 else "better")
    return " and ".join(told) or UNDECIDED


def _chosen(runs: Sequence[Run], arm: str) -> list[Run]:
    rate = best_rate(runs, arm, Protocol().rates)
    return [run for run in runs if (run["arm"], run["rate"]) == (arm, rate) and run["seed"] != TUNED]


def _row(name: str, some: Sequence[Run], full: Sequence[float]) -> Row:
    losses, middle = [run["loss"] for run in some], float(np.mean(full))
    row = {
        "arm": name,
        "seeds": len(some),
        "rate": some[0]["rate"],
        "loss": float(np.mean(losses)),
        "deviation": float(np.std(losses, ddof=1)),
        "H_labels": float(np.mean([run["H_labels"][str(run["n"])] for run in some])),
        "R_labels": float(np.mean([run["R_labels"] for run in some])),
        "cpu_seconds": float(np.mean([run["cpu_seconds"] for run in some])),
        "offline_cpu_seconds": float(np.mean([run["offline_cpu_seconds"] for run in some])),
        "train_loss": np.mean([run["train_loss"] for run in some], axis=0).tolist(),
    }
    if name != FULL:
        row["apart"] = 100 * (row["loss"] / middle - 1)
        row["error"] = 100 / middle * float(np.sqrt(sum(np.var(v, ddof=1) / len(v) for v in (losses, full))))
        row["p_equal"] = equivalence(losses, full, MARGIN * middle)
        row["p_differs"] = difference(losses, full)
    return row


def language_table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    head = [
        "order",
        "seeds",
        "rate",
        "H",
        "R",
        "loss, nats per byte",
        "± sd",
        "to full",
        "p equal",
        "p differs",
        "verdict",
    ]
    lines = []
    for row in rows:
        cells = [row["arm"], str(row["seeds"]), f"{row['rate']:g}", f"{row['H_labels']:.3g}", f"{row['R_labels']:.3g}"]
        cells += [f"{row['loss']:.4f}", f"{row['deviation']:.4f}"]
        if "apart" in row:
            cells += [f"{row['apart']:+.2f} %", f"{row['p_equal']:.3f}", f"{row['p_differs']:.3f}", row["verdict"]]
        lines.append(cells + [""] * (len(head) - len(cells)))
    return markdown(head, lines)


def source_table(sources: Sequence[dict[str, Any]]) -> str:
    """What exactly was read."""
    lines = [[one["name"], one["what"], f"{one['bytes']:,}", f"`{one['sha256'][:16]}…`"] for one in sources]
    return markdown(["source", "what", "bytes", "SHA-256"], lines)


def picture(rows: Sequence[Row]) -> Figure:
    """The loss while training, and at the end by H and by R."""
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    over_time, by_h, by_r = figure.subplots(1, 3)
    for number, row in enumerate(rows):
        look = style(number)
        steps = np.linspace(0, 100, len(row["train_loss"]))
        over_time.plot(steps, row["train_loss"], color=look["color"], linewidth=1, label=row["arm"])
        for axes, key in ((by_h, "H_labels"), (by_r, "R_labels")):
            error = 2 * row.get("error", 0.0)
            axes.errorbar([row[key]], [row.get("apart", 0.0)], yerr=[error], capsize=2, label=row["arm"], **look)
    over_time.set(xlabel="% of the epoch", ylabel="training loss, nats per byte")
    _excess(by_h, "H of a window, by source")
    _excess(by_r, "R over eight blocks, by source")
    figure.legend(*by_h.get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure


def _excess(axes: Axes, what: str) -> None:
    axes.axhspan(-100 * MARGIN, 100 * MARGIN, color="#009e73", alpha=0.12, linewidth=0)
    axes.set(xscale="log", xlabel=what, ylabel="loss above that of a full shuffle, %")
    axes.set_yscale("symlog", linthresh=1)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")


def _made() -> tuple[list[Run], Any]:
    """The runs here, and what they read, which is the same for all."""
    runs = kept(Protocol().key)
    sources = [run.pop("sources") for run in runs]
    if any(one != sources[0] for one in sources):
        raise SystemExit("the runs here were made from different texts; remove those that are older")
    return runs, sources[0] if sources else []


def _published(folder: Path) -> tuple[list[Run], Any]:
    found = json.loads((folder / "language.json").read_text())
    return found["runs"], found["sources"]


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__)
    asks.add_argument("--from", dest="source", type=Path, help="a folder of published results; else the runs here")
    asked = asks.parse_args(arguments)
    runs, sources = _published(asked.source) if asked.source else _made()
    rows = rows_of(runs)
    if not rows:
        raise SystemExit(
            "no arm was trained with two seeds, and the full shuffle too; run python -m experiments.language"
        )
    content = {"machine": runs[0]["machine"], "sources": sources, "rows": rows, "runs": runs}
    command = "python -m experiments.language && python -m experiments.language_show"
    publish("language", command, content, lambda: picture(rows), asked.out)
    print(language_table(rows))


if __name__ == "__main__":
    main()

"""Tables and pictures of all runs that were finished: Figure 4, accuracy against H, gaps on tables.

``python -m experiments.show`` reads ``.data/runs`` and writes ``docs/results``; ``--from docs/results`` draws again
from what was published.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments import images, tables
from experiments.results import COLORS, MARKERS, markdown, parser, publish, style
from experiments.runs import Run, kept
from experiments.significance import UNDECIDED, difference, equivalence, holm, verdict

FULL = "random access"
AFTER = (1, 2, 5)

Row = dict[str, Any]


def _mean(runs: Sequence[Run], key: str) -> float | None:
    found = [run[key] for run in runs if run[key] is not None]
    return float(np.mean(found)) if found else None


def _by_arm(runs: Sequence[Run], key: str) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        groups.setdefault(run[key], []).append(run)
    return groups


def summary(runs: Sequence[Run]) -> list[Row]:
    """A row an arm of an image set, compared with the full shuffle of the same network."""
    arms = {name: some for name, some in _by_arm(runs, "arm").items() if len(some) > 1}
    rows = []
    for name, some in arms.items():
        accuracy = [run["accuracy"] for run in some]
        row = {
            "arm": name,
            "seeds": len(some),
            "accuracy": float(np.mean(accuracy)),
            "deviation": float(np.std(accuracy, ddof=1)),
            **{key: _mean(some, key) for key in ("loss", "area", "H_labels", "H_gradients", "spread", "missing")},
            "requests": some[0]["requests"],
            "cpu_seconds": float(np.mean([run["epochs"][-1]["cpu_seconds"] for run in some])),
            "offline_cpu_seconds": _mean(some, "offline_cpu_seconds"),
        }
        reference = FULL if some[0]["norm"] == "batch" else f"{FULL}, {some[0]['norm']} norm"
        if name != reference and reference in arms:
            full = [run["accuracy"] for run in arms[reference]]
            row["apart"] = row["accuracy"] - float(np.mean(full))
            row["p_equal"], row["p_differs"] = equivalence(accuracy, full), difference(accuracy, full)
            row["error"] = float(np.sqrt(np.var(accuracy, ddof=1) / len(accuracy) + np.var(full, ddof=1) / len(full)))
        rows.append(row)
    compared = [row for row in rows if "apart" in row]
    for row, corrected in zip(compared, holm([row["p_differs"] for row in compared]), strict=True):
        row["p_differs"] = corrected
        row["verdict"] = verdict(row["p_equal"], corrected, row["apart"])
    return sorted(rows, key=lambda row: row["H_labels"])


def _number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def image_table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    head = ["order (b, n)", "seeds", "H, labels", "H, gradients", "accuracy", "± sd", "area", "loss", "to full"]
    head += ["p equal", "p differs", "verdict", "a class in a buffer, ±", "classes missing", "requests", "CPU s"]
    lines: list[list[str]] = []
    for row in rows:
        cells = [row["arm"], str(row["seeds"]), _number(row["H_labels"]), _number(row["H_gradients"])]
        cells += [f"{row['accuracy']:.2f}", f"{row['deviation']:.2f}", f"{row['area']:.1f}", _number(row["loss"])]
        if "apart" in row:
            cells += [f"{row['apart']:+.2f}", _chance(row["p_equal"]), _chance(row["p_differs"]), row["verdict"]]
        else:
            cells += ["", "", "", ""]
        cells += [_number(row["spread"]), _number(row["missing"])]
        cells += [f"{row['requests']:,}", f"{row['cpu_seconds'] + (row['offline_cpu_seconds'] or 0):.0f}"]
        lines.append(cells)
    return markdown(head, lines)


def _chance(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def figure4(runs: Sequence[Run], rows: Sequence[Row]) -> Figure:
    """Accuracy and loss on the test set, per epoch and per second of the processor; the mean of all seeds."""
    figure = Figure(figsize=(12.5, 8), layout="constrained")
    grid = figure.subplots(2, 2, sharey="row")
    arms = _by_arm(runs, "arm")
    for number, name in enumerate(row["arm"] for row in rows):
        curves = [run["epochs"] for run in arms[name]]
        before = _mean(arms[name], "offline_cpu_seconds") or 0
        epochs = np.arange(1, len(curves[0]) + 1)
        seconds = before + np.mean([[epoch["cpu_seconds"] for epoch in curve] for curve in curves], axis=0)
        for axes, what in zip(grid, ("accuracy", "loss"), strict=True):
            values = np.mean([[epoch[what] for epoch in curve] for curve in curves], axis=0)
            for place, x in zip(axes, (epochs, seconds), strict=True):
                place.plot(x, values, label=name, markersize=4, linewidth=1.2, **style(number))
    for axes, what in zip(grid, ("test accuracy, %", "test loss"), strict=True):
        axes[0].set(xlabel="epoch", ylabel=what)
        axes[1].set(xlabel="seconds of one processor; Corgi… with its reading and its offline pass")
    best = min(row["loss"] for row in rows)
    grid[1][0].set_ylim(top=min(grid[1][0].get_ylim()[1], 4 * best), bottom=0.9 * best)
    figure.legend(*grid[0][0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure


def against_h(found: Mapping[str, Sequence[Row]]) -> Figure:
    """All methods on one curve: how far from the full shuffle, by H. A colour is a data set, a marker a method."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    grid = figure.subplots(1, 2, sharey=True)
    methods = list(dict.fromkeys(_method(row) for rows in found.values() for row in rows if "norm" not in row["arm"]))
    for axes, key in zip(grid, ("H_labels", "H_gradients"), strict=True):
        for number, rows in enumerate(found.values()):
            full = next(row["accuracy"] for row in rows if row["arm"] == FULL)
            for row in rows:
                is_dead = row["accuracy"] < full / 5  # and its gradients say nothing
                if "group norm" not in row["arm"] and not (key == "H_gradients" and is_dead):
                    _point(axes, row[key], row, number, methods.index(_method(row)))
        axes.axhspan(-0.5, 0.5, color="#009e73", alpha=0.12, linewidth=0)
        axes.axvline(5, color="#999999", linewidth=1, linestyle=":")
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_yticks(_POINTS, [f"{value:g}" for value in _POINTS])
        axes.set_yticks([], minor=True)
        axes.xaxis.set_major_formatter("{x:g}")
    grid[0].set(xlabel="H, by labels", ylabel="accuracy less that of a full shuffle, points")
    grid[1].set(xlabel="H, by gradients of the last layer, of networks that trained")
    handles: list[Artist] = [Patch(color=COLORS[number], label=name) for number, name in enumerate(found)]
    for number, name in enumerate(methods):
        handles.append(Line2D([], [], color="#555555", linestyle="none", marker=MARKERS[number], label=name))
    figure.legend(handles=handles, fontsize=8, loc="outside right upper")
    return figure


_POINTS = (-50, -20, -10, -5, -2, -1, 0, 1)


def _method(row: Row) -> str:
    return str(row["arm"].partition(" (")[0])


def _point(axes: Axes, x: float, row: Row, color: int, marker: int) -> None:
    look: dict[str, Any] = {"color": COLORS[color], "marker": MARKERS[marker]}
    axes.errorbar([x], [row.get("apart", 0.0)], yerr=[2 * row.get("error", 0.0)], capsize=2, alpha=0.85, **look)


def table_rows(runs: Sequence[Run]) -> list[Row]:
    """A row a method, at the learning rate that was best for it after the last epoch."""
    rows = []
    for name, some in _by_arm([run for run in runs if "gaps" in run], "method").items():
        measured = [run for run in runs if run["method"] == name and "H_gradients" in run]
        gaps = np.array([run["gaps"] for run in some])  # seed, epoch, rate
        rate = int(np.nanargmin(gaps[:, -1].mean(axis=0)))
        after = [epoch for epoch in AFTER if epoch <= gaps.shape[1]]
        chosen = {str(epoch): gaps[:, epoch - 1, rate] for epoch in after}
        rows.append(
            {
                "method": name,
                "seeds": len(some),
                "H_labels": _mean(some, "H_labels"),
                "H_gradients": _mean(measured, "H_gradients"),
                "rate": some[0]["rates"][rate],
                "gaps": {epoch: float(values.mean()) for epoch, values in chosen.items()},
                "last": gaps[:, -1, rate].tolist(),
                "errors": {
                    epoch: float(values.std(ddof=1) / np.sqrt(len(some))) if len(some) > 1 else 0.0
                    for epoch, values in chosen.items()
                },
            }
        )
    full: list[float] = next((row["last"] for row in rows if row["method"] == FULL), [])
    compared = [row for row in rows if row["method"] != FULL and min(len(row["last"]), len(full)) > 1]
    for row, chance in zip(compared, holm([difference(row["last"], full) for row in compared]), strict=True):
        row["p_differs"] = chance
        told = verdict(1.0, chance, float(np.mean(full) - np.mean(row["last"])))
        row["verdict"] = "not told apart" if told == UNDECIDED else told  # no margin was fixed
    return sorted(rows, key=lambda row: row["H_labels"])


def gap_table(found: Mapping[str, Sequence[Row]]) -> str:
    """As Markdown."""
    after = [f"after {epoch}" for epoch in AFTER]
    head = ["data", "order", "seeds", "H, labels", "H, gradients", "rate", *after, "p differs", ""]
    lines: list[list[str]] = []
    for name, rows in found.items():
        for row in rows:
            cells = [name, row["method"], str(row["seeds"]), _number(row["H_labels"]), _number(row["H_gradients"])]
            cells += [f"{row['rate']:g}"]
            cells += [
                f"{row['gaps'][str(epoch)]:.5f} ± {row['errors'][str(epoch)]:.5f}" if str(epoch) in row["gaps"] else ""
                for epoch in AFTER
            ]
            cells += [_chance(row["p_differs"]) if "p_differs" in row else "", row.get("verdict", "")]
            lines.append(cells)
    return markdown(head, lines)


def gap_figure(found: Mapping[str, Sequence[Row]]) -> Figure:
    figure = Figure(figsize=(2.6 * len(found) + 2, 4), layout="constrained")
    grid = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (name, rows) in zip(grid, found.items(), strict=True):
        for number, method in enumerate(tables.METHODS):
            for row in rows:
                if row["method"] == method:
                    epochs = [int(epoch) for epoch in row["gaps"]]
                    errors = [2 * error for error in row["errors"].values()]
                    values = list(row["gaps"].values())
                    axes.errorbar(epochs, values, yerr=errors, capsize=2, label=method, **style(number))
        axes.set(yscale="log", xlabel="epochs")
        axes.set_title(name, fontsize=10)
    grid[0].set_ylabel("loss above the best")
    figure.legend(*grid[0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure


def _runs(name: str, key: str, source: Path | None) -> list[Run]:
    """Those that were published under a name, or those that were made here under a key."""
    if source is None:
        return kept(key)
    file = source / f"{name}.json"
    return list(json.loads(file.read_text())["runs"]) if file.exists() else []


def _lean(run: Run) -> Run:
    """With as many digits as mean something."""
    return {key: _rounded(value) for key, value in run.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return value


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__)
    asks.add_argument("--from", dest="source", type=Path, help="a folder of published results; else the runs here")
    asked = asks.parse_args(arguments)
    pictures: dict[str, list[Row]] = {}
    for name in images.PROTOCOLS:
        protocol = images.PROTOCOLS[name]
        names = {arm.name for arm in protocol.arms}
        runs = [_lean(run) for run in _runs(name, protocol.key, asked.source) if run["arm"] in names]
        rows = summary(runs)
        if rows:
            pictures[name] = rows
            command = f"python -m experiments.images {name} && python -m experiments.show"
            content = {"machine": runs[0]["machine"], "rows": rows, "runs": runs}
            publish(name, command, content, partial(figure4, runs, rows), asked.out)
            print(image_table(rows))
    if pictures:
        command = "python -m experiments.show"
        publish("accuracy-against-h", command, {"rows": pictures}, lambda: against_h(pictures), asked.out)
    gaps: dict[str, list[Row]] = {}
    for name in tables.PROBLEMS:
        runs = [_lean(run) for run in _runs(name, tables.key(name), asked.source)]
        if runs:
            gaps[name] = table_rows(runs)
            command = f"python -m experiments.tables {name} && python -m experiments.show"
            publish(name, command, {"machine": runs[0]["machine"], "rows": gaps[name], "runs": runs}, folder=asked.out)
    if gaps:
        publish("gaps", "python -m experiments.show", {"rows": gaps}, lambda: gap_figure(gaps), asked.out)
        print(gap_table(gaps))


if __name__ == "__main__":
    main()

"""Whether data that is sorted can be told from the same data shuffled, without a label.

``python -m experiments.content --data FOLDER`` prints the table of docs/measuring.md.

The label, and the number of each row, which these data sets have beside it, are left out.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import corgi2
from corgi2.dataset import find_source, index_of
from corgi2.quality import measure
from corgi2.quality.content import Content, look_at_content
from experiments.data import DEFAULT, SETS, DataSet


def row(data: DataSet, folder: Path) -> str:
    """One line of the table."""
    shards = data.shards(folder)
    place = Path(tempfile.mkdtemp(dir=shards.parent))
    try:
        corgi2.shuffle(shards, place / "out", buffer="4GB")
        before, after = _look(shards, data.label), _look(place / "out", data.label)
        cells = [data.name, *(f"{measure(at, [data.label]).h_D:,.1f}" for at in (shards, place / "out"))]
    finally:
        shutil.rmtree(place)
    strongest = before.traits[0]
    again = next(trait for trait in after.traits if trait.what == strongest.what)
    cells += [strongest.what.replace("'", "`"), *(_cell(trait.h, trait.limit) for trait in (strongest, again))]
    shown = [f"{sum(trait.shows for trait in found.traits)} of {len(found.traits)}" for found in (before, after)]
    return f"| {' | '.join([*cells, *shown])} |"


def _look(shards: Path, label: str) -> Content:
    source = find_source(shards)
    found = look_at_content(source, index_of(source), without={label, "row"})
    if found is None:
        raise SystemExit(f"{shards}: has one block")
    return found


def _cell(h: float, limit: float) -> str:
    return f"{h:,.1f} (luck: {limit:,.1f})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    asked = parser.parse_args(arguments)
    print("| data | h_D by label | shuffled | strongest trait | h as stored | h shuffled | show | shuffled |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for data in SETS:
        print(row(data, asked.data), flush=True)


if __name__ == "__main__":
    main()

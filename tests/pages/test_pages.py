"""Pages stand alone, say nothing that was not escaped, and show their pictures in a real browser."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import corgi2
from corgi2.pages import Labels, Section, Series, Table, Text, heat_section, line_chart, page, scatter
from tests.sources import write_tars

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
HEADLESS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
VOID = {"meta", "link", "br"}


class _Reader(HTMLParser):
    """Collects tags, and checks that they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def pictures(self) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag == "svg" and "role" in attrs]

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.tags)


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def _stands_alone(reader: _Reader) -> bool:
    """Nothing is loaded, and nothing runs."""
    links = [value for _, attrs in reader.tags for name, value in attrs.items() if name in ("src", "href")]
    return not reader.count("script") and links == ["data:,"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    source = write_tars(folder / "in", 30, 20)
    corgi2.shuffle(source, folder / "out", buffer=10**9, buffer_blocks=10)
    made = [folder / "inspect.html", folder / "plan.html"]
    commands = (
        ["inspect", str(source), "--label", "cls", "--after", str(folder / "out"), "--html", str(made[0])],
        [
            "plan",
            str(source),
            "--label",
            "cls",
            "--buffer",
            "400KB",
            "--online-buffer",
            "100KB",
            "--html",
            str(made[1]),
        ],
    )
    for words in commands:
        subprocess.run([sys.executable, "-m", "corgi2", *words], check=True, capture_output=True)
    return made


def test_pages_have_a_picture_a_section_and_a_table_behind_each(pages: list[Path]) -> None:
    for path in pages:
        text = path.read_text()
        reader = _read(text)
        assert len(reader.pictures()) == reader.count("section") == reader.count("details") == 2
        assert reader.count("table") >= 2
        assert _stands_alone(reader)
        assert "prefers-color-scheme:dark" in text
        assert ("meta", {"name": "viewport", "content": "width=device-width,initial-scale=1"}) in reader.tags


def test_a_heat_map_has_a_cell_for_every_block_and_class(pages: list[Path]) -> None:
    assert pages[0].read_text().count('<rect class="cell"') == 2 * 30 * 10


def test_the_recommended_point_is_marked(pages: list[Path]) -> None:
    text = pages[1].read_text()
    assert text.count('class="ring"') == 1
    assert text.count("(recommended)") == 2
    assert len(re.findall("<tr class=marked>", text)) == 1


def test_names_are_escaped() -> None:
    evil = '<script>alert("x")</script>&'
    table = Table([evil], [[evil]])
    labels = Labels(evil, evil, Text(), (1, evil))
    series = line_chart([Series(evil, [(1, 1), (2, 2)], 0)], labels, marked=0, mark=evil)
    dots = scatter([evil], [(1, 1)], 0, labels, evil)
    heat = heat_section(evil, evil, [evil], [0], np.ones((1, 1)))
    text = page(evil, [evil], [Section(evil, evil, series + dots, table), heat], evil, evil)
    assert _read(text).count("script") == 0


def test_many_classes_and_blocks_are_cut_to_what_can_be_seen() -> None:
    counts = np.random.default_rng(0).integers(0, 9, (500, 3000)).astype(float)
    section = heat_section("t", "t", [f"class {n}" for n in range(3000)], list(range(500)), counts)
    assert section.html().count('<rect class="cell"') == 64 * 40
    assert "Of 3,000 classes the 40 most frequent are shown" in section.html()


@pytest.mark.parametrize("points", [[(1.0, 1.0)], [(0.0, 0.0), (1e18, 1e18)], [(5.0, 5.0), (5.001, 5.0)]])
def test_axes_hold_whatever_there_is(points: list[tuple[float, float]]) -> None:
    text = line_chart([Series("a", points, 0)], Labels("x", "y", Text("$")))
    numbers = [float(n) for pair in re.findall(r'points="([^"]*)"', text) for n in re.split(r"[ ,]", pair)]
    assert all(0 <= number <= 400 for number in numbers)


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("dark", [0, 1])
def test_a_browser_shows_the_pages_without_a_complaint(
    pages: list[Path], width: int, dark: int, tmp_path: Path
) -> None:
    for path in pages:
        picture = tmp_path / f"{path.stem}.png"
        flags = [*HEADLESS, f"--user-data-dir={tmp_path / 'profile'}", f"--blink-settings=preferredColorScheme={dark}"]
        flags += ["--enable-logging=stderr", "--v=0", f"--window-size={width},2400", f"--screenshot={picture}"]
        done = subprocess.run([str(BROWSER), *flags, path.as_uri()], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0
        assert "CONSOLE" not in done.stderr
        assert picture.stat().st_size > 10_000


@pytest.mark.parametrize("values", [[95.1, 97.0], [1e8, 1e8], [0.0, 0.0], [1.0, 3.0], [-2.0, 50.0]])
def test_linear_axes_have_ticks_that_differ(values: list[float]) -> None:
    points = [(float(place), value) for place, value in enumerate(values)]
    chart = line_chart([Series("a", points, 0)], Labels("x", "y", Text()), is_log=False)
    numbers = re.findall(r'text-anchor="end"[^>]*>([^<]*)<', chart)
    assert len(numbers) == len(set(numbers)) >= 2

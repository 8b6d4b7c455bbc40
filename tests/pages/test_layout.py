"""What a picture says can be read: no words lie on others or beyond the edge, and no two series look alike."""

import re
import subprocess
from dataclasses import dataclass, replace
from html import unescape
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.advice.picture import plan_page
from corgi2.advice.prices import NOTHING
from corgi2.advice.recommendation import Advice, advise
from corgi2.advice.situation import Means, Shape
from corgi2.pages import Labels, Series, Text, heat_section, line_chart, page, scatter
from corgi2.pages.looks import DISTINCT, shape, stroke
from corgi2.pages.places import LINE, WIDTH, Box, spread, text_width
from tests.pages.test_pages import BROWSER, HEADLESS

MOST = 24

numbers = st.one_of(st.floats(1e-6, 1e15), st.sampled_from([0.0, 1.0, 1.01, 1e3]))
places = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=MOST)
names = st.text(max_size=120)


@dataclass(frozen=True)
class Word:
    """A text of a picture, and the place that it takes."""

    text: str
    box: Box


def _words(picture: str) -> list[Word]:
    found = re.findall(r'<text x="([^"]*)" y="([^"]*)" text-anchor="(\w+)"(?: style="([^"]*)")?>([^<]*)<', picture)
    return [_word(float(x), float(y), anchor, style, unescape(text)) for x, y, anchor, style, text in found]


def _word(x: float, y: float, anchor: str, style: str, text: str) -> Word:
    size = re.search(r"font-size:([\d.]+)", style)
    scale = float(size[1]) / 11 if size else 1.0
    width = text_width(text) * scale
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Word(text, Box(left, y - 9 * scale, left + width, y + 1))


def _check(picture: str) -> None:
    """All words are within the picture, and apart."""
    svg = picture[: picture.index("</svg>")]
    match = re.match(r'<svg viewBox="0 0 (\d+) (\d+)"', svg)
    assert match is not None
    edge = Box(-0.1, -0.1, int(match[1]) + 0.1, int(match[2]) + 0.1)
    words = _words(svg)
    assert len(words) == svg.count("<text ")
    for word in words:
        assert word.box.is_within(edge), word
    for one, other in combinations([word for word in words if word.text], 2):
        assert not _shrunk(one.box).meets(_shrunk(other.box)), (one, other)


def _shrunk(box: Box) -> Box:
    """Numbers in SVG are rounded."""
    return replace(box, left=box.left + 0.2, right=box.right - 0.2, top=box.top + 0.2, bottom=box.bottom - 0.2)


@settings(max_examples=150, deadline=None)
@given(places, names, names, st.data())
def test_no_words_of_a_scatter_meet_or_are_cut_wherever_points_lie(
    points: list[tuple[float, float]], x: str, y: str, data: st.DataObject
) -> None:
    marked = data.draw(st.integers(0, len(points) - 1))
    picture = scatter([f"method {n}" for n in range(len(points))], points, marked, Labels(x, y, Text("$")), "best")
    _check(picture)
    inside = picture[: picture.index("</svg>")]
    assert {word.text for word in _words(inside)} >= {str(n + 1) for n in range(len(points))}
    assert "(best)" in picture


@settings(max_examples=80, deadline=None)
@given(places)
def test_no_number_of_a_scatter_lies_on_a_point(points: list[tuple[float, float]]) -> None:
    inside = scatter([""] * len(points), points, 0, Labels("x", "y", Text())).split("</svg>")[0]
    dots = [Box.around(float(x), float(y), 8, 8) for x, y in re.findall(r"translate\(([\d.]+) ([\d.]+)\)", inside)]
    marks = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="middle" style="fill[^>]*>(\d+)<', inside)
    assert len(dots) == len(marks) == len(points)
    for x, y, text in marks:
        assert not any(_word(float(x), float(y), "middle", "", text).box.meets(dot) for dot in dots)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9), min_size=1, max_size=16),
    st.booleans(),
    st.one_of(st.none(), st.tuples(numbers, st.text(max_size=60))),
)
def test_no_words_of_a_line_chart_meet_or_are_cut_whatever_the_lines(
    lines: list[list[tuple[float, float]]], is_log: bool, here: tuple[float, str] | None
) -> None:
    series = [Series(f"line {n}", sorted(points), n) for n, points in enumerate(lines)]
    picture = line_chart(series, Labels("buffer", "H", Text(is_size=True), here), is_log, 0, "best")
    _check(picture)
    shown = {word.text for word in _words(picture.split("</svg>")[0])}
    assert shown >= {str(n + 1) for n in range(len(lines))}


@given(st.lists(st.floats(0, 100), max_size=9))
def test_places_are_spread_in_their_order_and_stay_where_there_is_room(wanted: list[float]) -> None:
    found = spread(wanted, 10, 0, 100)
    assert all(-1e-9 <= place <= 100 + 1e-9 for place in found)
    for one, other in combinations(range(len(wanted)), 2):
        assert abs(found[one] - found[other]) >= 10 - 1e-9
        assert wanted[one] == wanted[other] or (wanted[one] < wanted[other]) == (found[one] < found[other])
    if all(abs(one - other) >= 10 for one, other in combinations(wanted, 2)):
        assert found == wanted


def test_no_two_of_forty_series_look_alike_in_points_or_in_lines() -> None:
    points = {shape(number, 0, 0) for number in range(DISTINCT)}
    lines = {stroke(number) for number in (None, *range(DISTINCT))}
    assert DISTINCT == len(points) == 40
    assert len(lines) == 41


@settings(deadline=None)
@given(st.integers(1, 80), st.lists(names, min_size=1, max_size=60))
def test_no_words_of_a_heat_map_meet_or_are_cut_whatever_the_classes(rows: int, classes: list[str]) -> None:
    counts = np.ones((rows, len(classes)))
    section = heat_section("t", "t", classes, list(range(rows)), counts)
    _check(section.picture)


def test_words_about_colours_hold_in_light_and_in_dark() -> None:
    """A cell with more records is bright on a dark page, and dark on a bright one."""
    for path in (Path("src/corgi2/quality/picture.py"), Path("src/corgi2/demo/report.py"), *Path("docs").glob("*.md")):
        assert not re.search(r"\b(dark|bright)(er)? where\b", path.read_text("utf-8"))


MEANS = Means(
    buffer=64 * 10**9, online_buffer=4 * 10**9, epochs=10, nodes=8, prices=NOTHING, bandwidth=5e8, latency=0.03
)
LARGE = Shape(1_300_000_000, 27 * 10**12, 27_000, 27_000, 27 * 10**12, h_D=4e4)


def _curves(advice: Advice) -> tuple[str, list[str]]:
    """The line chart of a page, and the numbers at its lines."""
    chart = plan_page(advice).split("<section>")[1].split("</ul>")[0]
    return chart, [word.text for word in _words(chart) if word.text.isdigit()]


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.5, 4e4),
    st.integers(30, 40).map(lambda power: 2**power),
    st.integers(28, 40).map(lambda power: 2**power),
    st.booleans(),
)
def test_the_recommended_method_is_among_the_curves_and_drawn_strong(
    h: float, buffer: int, online_buffer: int, is_local: bool
) -> None:
    means = replace(MEANS, buffer=buffer, online_buffer=online_buffer)
    advice = advise(replace(LARGE, h_D=h, is_local=is_local), means)
    chart, _ = _curves(advice)
    marked = advice.methods.index(advice.recommended)
    assert chart.count('class="line strong"') == 1
    assert f"{marked + 1} {advice.recommended.name} (recommended)" in unescape(chart)
    strong = re.search(r'class="line strong"[^>]*points="([^"]*)"', chart)
    assert strong is not None
    assert len(strong[1].split()) > 1


def test_curves_are_numbered_as_the_points_and_the_table() -> None:
    advice = advise(LARGE, MEANS)
    chart, shown = _curves(advice)
    run = [str(n + 1) for n, method in enumerate(advice.methods) if not method.way.kind.is_reference]
    assert len(run) >= 9  # with blocks of other sizes
    assert set(run) <= set(shown)
    for number in run:
        assert f"{number} {advice.methods[int(number) - 1].name}" in unescape(chart)


def test_a_curve_passes_through_what_the_table_says_of_its_method() -> None:
    """Also with blocks that are cut smaller, whose size the buffer would choose otherwise."""
    advice = advise(LARGE, MEANS)
    section = plan_page(advice).split("<section>")[1]
    row = next(row for row in re.findall(r"<tr>(.*?)</tr>", section) if row.startswith("<td>4.0 GB<"))
    values = re.findall(r"<td>([^<]*)</td>", row)[1:]
    run = [method for method in advice.methods if not method.way.kind.is_reference]
    for method, value in zip(run, values, strict=True):
        assert float(value.replace(",", "")) == pytest.approx(method.H, rel=0.01)


_MEASURE = """<script>
let found = [];
for (const svg of document.querySelectorAll('svg[role]')) {
  const edge = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  for (const [name, box] of boxes)
    if (box.left < edge.left - 1 || box.right > edge.right + 1 ||
        box.top < edge.top - 3 || box.bottom > edge.bottom + 3)
      found.push('cut: ' + name);
  boxes.forEach(([name, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 0.5 && high > 4) found.push('overlap: ' + name + ' / ' + other);
  }));
}
if (document.documentElement.scrollWidth > window.innerWidth) found.push('the page is wider than the window');
document.title = 'measured ' + JSON.stringify(found);
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")
@pytest.mark.parametrize("width", [390, 1200])
def test_in_a_browser_no_words_are_cut_or_lie_on_others(width: int, tmp_path: Path) -> None:
    """With real fonts, in which a line is higher than its letters."""
    points = [(1.0, 1.0)] * 6 + [(10.0**n, 10.0 ** (n % 3)) for n in range(7)]
    dots = scatter(
        [f"method {n}" for n in range(13)], points, 3, Labels("dollars", "H over a full shuffle's", Text("$"))
    )
    counts = np.eye(10)
    heat = heat_section("heat", "text", [f"class{n}" for n in range(10)], list(range(10)), counts)
    section = replace(heat, picture=dots)
    inner = tmp_path / "inner.html"
    made = [plan_page(advise(LARGE, MEANS)), page("t", [], [heat, section])]
    for number, text in enumerate(made):
        inner.write_text(text.replace("</body>", _MEASURE + "</body>"), "utf-8")
        outer = tmp_path / f"outer{number}.html"
        outer.write_text(  # a window of chromium is 500 wide at least
            f'<iframe src="inner.html" style="border:0;width:{width}px;height:2000px" '
            'onload="document.title=this.contentDocument.title"></iframe>'
        )
        flags = [f"--user-data-dir={tmp_path / 'profile'}", "--allow-file-access-from-files", "--dump-dom"]
        done = subprocess.run(
            [str(BROWSER), *HEADLESS, *flags, "--window-size=1300,2000", outer.as_uri()],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "<title>measured []</title>" in done.stdout, done.stdout


def test_a_text_that_is_too_long_is_written_smaller() -> None:
    picture = scatter(["a"], [(1, 1)], 0, Labels("long " * 40, "y", Text()))
    word = next(word for word in _words(picture) if word.text.startswith("long"))
    assert word.box.right - word.box.left <= WIDTH + 0.5
    assert word.box.bottom - word.box.top < LINE

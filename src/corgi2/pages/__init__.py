"""Pages with pictures, as text: HTML and SVG that load nothing. Pure: numbers in, text out.

`html` makes the page, `pictures` the charts, `axes` and `places` say where things go in them, and `looks` how series
are told apart. Which pictures a command shows is decided by the command's own package (``picture`` there, ``report`` in
`demo`); a new kind of chart goes here.
"""

from corgi2.pages.axes import Labels, Text
from corgi2.pages.html import Section, Table, heat_section, page
from corgi2.pages.pictures import Series, line_chart, scatter

__all__ = ["Labels", "Section", "Series", "Table", "Text", "heat_section", "line_chart", "page", "scatter"]

"""Pages with pictures, as text: HTML and SVG that load nothing. The commands decide which pictures there are."""

from corgi2.pages.axes import Labels, Text
from corgi2.pages.html import Section, Table, heat_section, page
from corgi2.pages.pictures import Series, line_chart, scatter

__all__ = ["Labels", "Section", "Series", "Table", "Text", "heat_section", "line_chart", "page", "scatter"]

"""Pages with pictures, as text: HTML and SVG that load nothing. Which pictures there are, their commands know."""

from corgi2.pages.html import Section, Table, heat_section, page
from corgi2.pages.pictures import Labels, Series, Text, line_chart, scatter

__all__ = ["Labels", "Section", "Series", "Table", "Text", "heat_section", "line_chart", "page", "scatter"]

"""Pages with pictures, as text: HTML and SVG that load nothing."""

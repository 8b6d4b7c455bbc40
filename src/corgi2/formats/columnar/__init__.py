"""What formats of columns share: rows decoded by Arrow, side by side in an arena; their schemas, as text and in memory;
rows as samples."""

"""Formats whose records lie one after another in the file, each with its frame."""

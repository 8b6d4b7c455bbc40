"""What all formats share whose records lie one after another in the file, each with its frame: tar, JSON lines."""

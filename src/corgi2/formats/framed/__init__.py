"""What formats share whose records lie one after another, each with its frame: tar, JSON lines, TFRecord.

`frames` are the values, and what a new framed format has to say (`Framing`); `windows` reads a shard from front to
back, `reading` reads pieces of shards into an arena, `cutter` cuts records into blocks, and `format` is the format.
"""

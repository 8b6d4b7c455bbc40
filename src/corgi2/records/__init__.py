"""Records in memory: the arena that a group lies in, taken in any order, hashed; shards and blocks as values."""

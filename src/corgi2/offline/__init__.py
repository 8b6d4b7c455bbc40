"""The offline half of Corgi²: random groups of blocks are read, shuffled and written as new shards, exactly once."""

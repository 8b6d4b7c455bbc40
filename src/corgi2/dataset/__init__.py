"""A data set: from an address to shards, their blocks, the index that keeps them, and the layout of ``.corgi2/``."""

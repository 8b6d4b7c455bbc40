"""Which record goes where, as arithmetic: permutations that last, groups of blocks, an epoch dealt to its readers.

No I/O, numpy only. The same key gives the same order for ever.
"""

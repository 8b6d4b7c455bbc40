"""The online half: random blocks are read into a buffer, shuffled, and handed out, each example once an epoch."""

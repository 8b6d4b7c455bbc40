"""What each way of shuffling costs and buys, and which to take."""

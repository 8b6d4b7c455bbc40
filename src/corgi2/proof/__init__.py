"""Proof that nothing was lost, repeated or altered: two data sets compared, or one with what its shuffle kept."""

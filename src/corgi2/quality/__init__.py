"""How well a data set is mixed: measured on a sample, predicted, and as a loader's buffer would see it."""

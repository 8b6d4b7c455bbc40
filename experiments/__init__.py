"""The paper's experiments, on real data. One command each; ``--data`` names the folder with the data sets."""

"""The loops that numpy and SciPy have no operation for, in C: their sources, build and calls."""

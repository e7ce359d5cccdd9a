"""The settings of the four papers, each value with its place in the paper: `palimpsest init --preset paper-000`."""

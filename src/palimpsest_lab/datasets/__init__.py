"""Data sets of the papers by their names: how their published files are read. Nothing here fetches anything."""

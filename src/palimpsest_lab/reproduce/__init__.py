"""Tables and figures of the four papers, each declared as a grid of cells and run by the ordinary graph."""

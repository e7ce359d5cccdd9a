"""Tables and figures of the four papers, each declared as a grid of cells and run by the ordinary graph.

* `cells`: the cells of a grid: their names, and the params.yaml that they need
* `countings`: epsilon by both countings: as a paper counts it, and as it truly is
* `grid`: the declaration of a paper's table or figure: its rows and epsilons, its measures, and the published values
* `measures`: how a cell is measured: by which stage, in which file, and where the value stands in it
* `table`: the finished table: our values beside the published ones, as a page, as JSON and as a drawing
"""

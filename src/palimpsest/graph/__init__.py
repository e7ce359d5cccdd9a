"""The graph of stages: their declarations, dvc.yaml as it follows from them, and what a dvc.yaml says written out.

* `closure`: which code a stage runs: every module of the project that it can import, found by reading the source
* `expand`: the content of a dvc.yaml with its names written out: every repetition of a stage, and the files of each
* `render`: renders dvc.yaml from the declarations of stages and from what params.yaml says of the data set
* `stage`: the declaration of a stage, from which its entry in dvc.yaml follows
* `stages`: every stage of the graph, in the order of dvc.yaml
* `state`: which stages are up to date, by the lock file and the files as they lie: DVC's rule, applied without DVC
* `taint`: checks whether private data reach what is released without passing the meter
"""

"""The graph of stages: their declarations, dvc.yaml as it follows from them, and what a dvc.yaml says written out."""

"""palimpsest: differentially private synthetic text, with a metered privacy budget and an audit."""

__version__ = "0.1.0"

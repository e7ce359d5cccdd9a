"""`python -m palimpsest` is `palimpsest`."""

from palimpsest.cli.main import app

if __name__ == "__main__":
    app(prog_name="palimpsest")

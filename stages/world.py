"""Unpacks the invented world of the embedded data set."""

from palimpsest.params.load import load
from palimpsest.records.world.shipped import unpack
from palimpsest.workspace import RAW
from stages.common import start


def world() -> None:
    """params world -> data/raw."""
    name = load().world
    assert name is not None, "dvc.yaml has this stage only where params.yaml has a world"
    unpack(name, RAW)


if __name__ == "__main__":
    start(world)

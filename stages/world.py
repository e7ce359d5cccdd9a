"""Make the invented world of the embedded data set."""

from palimpsest.params.load import load
from palimpsest.records.world.generate import WorldSettings, make_world, write_world
from palimpsest.workspace import RAW
from stages.common import start


def world() -> None:
    """params world -> data/raw."""
    settings = load().world
    assert settings is not None, "dvc.yaml has this stage only where params.yaml has a world"
    write_world(make_world(WorldSettings.sized(**settings.model_dump())), RAW)


if __name__ == "__main__":
    start(world)

"""Settings of a bench's workspace: every value is read, some are changed, and all are written as a person would."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from palimpsest.params.file import RESOLVED
from palimpsest.params.load import parse, texts


def read_settings(workspace: Path) -> dict[str, Any]:
    """Every value, at its place in `Params`."""
    return dict(YAML(typ="safe", pure=True).load((workspace / RESOLVED).read_text(encoding="utf-8")))


def write_settings(workspace: Path, content: Mapping[str, Any]) -> None:
    """Write params.yaml for these values, and the file that holds them all."""
    for name, text in texts(parse(content)).items():
        (workspace / name).write_text(text, encoding="utf-8")

import re
from importlib import resources

import pytest

from palimpsest.report import drawing

CSS = resources.files("palimpsest.report").joinpath("templates/internal.css.j2").read_text(encoding="utf-8")
COLORS = sorted({*drawing.SERIES, *drawing.ZONES.values(), *drawing.CORPORA.values(), *drawing.BASELINES.values()})


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, "contrast ratio"."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def grounds() -> set[str]:
    return set(re.findall(r"--(?:paper|card): (#[0-9a-f]{6})", CSS))


def test_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("color", COLORS)
def test_marks_are_seen_on_every_ground(color: str) -> None:
    assert len(grounds()) >= 4
    assert min(contrast(color, ground) for ground in grounds()) >= 3


@pytest.mark.parametrize("name", ["ink", "soft", "accent", "stop", "look", "hold"])
def test_text_is_read_on_its_own_ground(name: str) -> None:
    themes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})\b", block)) for block in re.findall(r":root[^{]*{([^}]*)}", CSS)
    ]
    for colors in themes[:2]:
        assert min(contrast(colors[name], colors[ground]) for ground in ("paper", "card")) >= 4.5

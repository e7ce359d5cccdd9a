"""Extensions that installed packages bring. They come in by entry points, and by nothing else.

A group holds one kind of thing, each under a name of its own:

* `palimpsest.methods`: a `Method`;
* `palimpsest.settings`: `Keys` of params.yaml;
* `palimpsest.stages`: a sequence of `Stage`;
* `palimpsest.pages`: a `Section` of the audit page;
* `palimpsest.attacks`: a `MembershipKind`, a membership attack that shares in the test of a claim;
* `palimpsest.presets`: a `Preset` of `palimpsest init`;
* `palimpsest.commands`: a `Command`;
* `palimpsest.twins`: a function of a seed that makes the `Scene` of a method's end-to-end audit, read by the lab.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from palimpsest.errors import ParamsError

METHODS, SETTINGS, STAGES, PAGES = (f"palimpsest.{kind}" for kind in ("methods", "settings", "stages", "pages"))
ATTACKS, PRESETS, COMMANDS = (f"palimpsest.{kind}" for kind in ("attacks", "presets", "commands"))


_installed = functools.cache(entry_points)  # all groups at once: each look goes through every installed package


def find_entries(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, in the order of their names; nothing is imported.

    Raises:
        ParamsError: two packages bring something under the same name.
    """
    found: dict[str, EntryPoint] = {}
    for each in sorted(_installed().select(group=group), key=lambda each: each.name):
        if found.setdefault(each.name, each).value != each.value:
            raise ParamsError(
                f"Two packages bring {each.name!r} ({group}): {found[each.name].value} and {each.value}.",
                "Uninstall one of them; nothing was charged and no row was read.",
            )
    return found


def load(entry: EntryPoint) -> Any:
    """Load what an entry point names.

    Raises:
        ParamsError: it cannot be imported.
    """
    try:
        return entry.load()
    except Exception as error:  # a stranger's module may raise anything where it is imported
        package = entry.dist.name if entry.dist else entry.module
        raise ParamsError(
            f"The package {package} brings {entry.name!r} ({entry.group}), which cannot be loaded "
            f"({type(error).__name__}: {error}).",
            f"Update {package} or uninstall it; nothing was charged and no row was read.",
        ) from error


def require_apart(what: str, names: Iterable[str]) -> None:
    """Raise ParamsError where a name stands twice: a package would take the place of what is there, in silence."""
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ParamsError(
            f"An installed package brings {what} {twice[0]!r}, and there is one already.",
            "Uninstall that package or use a version with another name; nothing was charged and no row was read.",
        )


def load_group(group: str) -> Mapping[str, Any]:
    """Load everything of a group, by name."""
    return {name: load(entry) for name, entry in find_entries(group).items()}

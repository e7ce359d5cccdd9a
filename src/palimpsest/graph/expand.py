"""The content of a dvc.yaml with its names written out: every repetition of a stage, and the files of each."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from palimpsest.errors import DataError, ParamsError
from palimpsest.params.file import RESOLVED

MADE = ("outs", "metrics", "plots")
_NAMED = re.compile(r"\$\{([\w.]+)\}")


@dataclass(frozen=True)
class Repetition:
    """A stage of dvc.yaml that runs once, or one repetition of a stage."""

    stage: str  # its name in dvc.yaml
    name: str  # as `dvc repro` prints it
    body: Mapping[str, Any]  # what dvc.yaml says of it
    values: Mapping[str, Any]  # what its names stand for: the content of params.yaml, and `item` and `key`

    def paths(self, *keys: str) -> list[str]:
        """Return the paths under these keys, written out, each once; raise what `fill_names` raises."""
        return list(dict.fromkeys(fill_names(self._paths(keys), self.values)))

    def known_paths(self, *keys: str) -> list[str]:
        """Return the paths under these keys, but leave a name that stands for nothing as it is."""
        return [_NAMED.sub(self._word, text) for text in self._paths(keys)]

    def _paths(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the paths as they are written, whether or not options follow them."""
        for entry in (entry for key in keys for entry in self.body.get(key, [])):
            yield from [entry] if isinstance(entry, str) else entry

    def _word(self, name: re.Match[str]) -> str:
        value = _value(name[0], self.values)
        return name[0] if value is None else str(value)


def expand(graph: Mapping[str, Mapping[str, Any]], params: Mapping[str, Any]) -> list[Repetition]:
    """The repetitions of every stage; none of a stage that is repeated for nothing.

    Args:
        graph: `stages` of dvc.yaml.
        params: the content of params.yaml.

    Raises:
        ParamsError: a list that a stage is repeated for is not in params.yaml.
    """
    return [one for stage, entry in graph.items() for one in _repetitions(stage, entry, params)]


def list_unrepeated(graph: Mapping[str, Mapping[str, Any]], params: Mapping[str, Any]) -> list[Repetition]:
    """Every stage as it is written, once."""
    return [Repetition(stage, stage, entry.get("do", entry), params) for stage, entry in graph.items()]


def params_keys(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that a stage depends on, of params.yaml and of the values resolved from it."""
    for entry in body.get("params", []):
        yield from [entry] if isinstance(entry, str) else entry.get(RESOLVED, [])


def fill_names(texts: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """The texts with every name written out.

    Raises:
        DataError: a name cannot be read.
        ParamsError: a name stands for nothing.
    """
    written_out = [_NAMED.sub(lambda name: str(_require_value(name[0], values)), text) for text in texts]
    for text in written_out:
        if "${" in text:
            raise DataError(
                f"dvc.yaml has {text!r}, in which a name cannot be read.", "Write names as ${section.key} and no more."
            )
    return written_out


def value_at(values: Any, key: str) -> Any:
    """Return the value at a key with dots; None where there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _repetitions(stage: str, entry: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[Repetition]:
    if "matrix" in entry:
        lists = {key: _require_value(names, params) for key, names in entry["matrix"].items()}
        for chosen in product(*lists.values()):
            own = {"item": dict(zip(lists, chosen, strict=True))}
            yield Repetition(stage, f"{stage}@{'-'.join(map(str, chosen))}", entry, {**params, **own})
    elif "foreach" in entry:
        names = _require_value(entry["foreach"], params)
        pairs = names.items() if isinstance(names, Mapping) else [(value, value) for value in names]
        for key, item in pairs:
            yield Repetition(stage, f"{stage}@{key}", entry["do"], {**params, "key": key, "item": item})
    else:
        yield Repetition(stage, stage, entry, params)


def _require_value(text: Any, values: Mapping[str, Any]) -> Any:
    value = _value(text, values)
    if value is None:
        raise ParamsError(
            f"dvc.yaml has {text}, which stands for nothing in params.yaml.",
            "Give it a value there, and name none elsewhere: `vars` is not read.",
        )
    return value


def _value(text: Any, values: Any) -> Any:
    """Return what `${a.b}` stands for; anything else stands for itself."""
    named = _NAMED.fullmatch(text) if isinstance(text, str) else None
    return text if named is None else value_at(values, named[1])

"""`python -m bench.versions`: says what changed in what is asked since `tests/versions.json` was written.

`--write` writes it anew. It refuses where behaviour changed under the same numbers: raise one in
`palimpsest.privacy.planned` then, so that nobody replays an answer onto what it was not asked about.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.behaviour import FILE, found

_CLOSE = 1e-4  # relative: last bits are the machine's


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """In words, each behaviour that is another under the same versions, or that the file does not have."""
    for kind, number in (("queries", "versions"), ("tools", "version")):
        for name, own in now[kind].items():
            old = before.get(kind, {}).get(name)
            if old is None:
                yield f"{name}: it is not in the file"
            elif old[number] == own[number] and not alike(old, own):
                yield f"{name}: it does something else under the same version"
    for method, own in now["defaults"].items():
        old = before.get("defaults", {}).get(method, {})
        for key in old:
            if key not in own or not alike(old[key], own[key]):
                yield f"{method}.{key}: its default is another, and whoever left it out would be known as before"


def raised(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What has other versions than in the file."""
    pairs = ((kind, number, name) for kind, number in _NUMBERS for name in now[kind])
    return [
        name
        for kind, number, name in pairs
        if name in before[kind] and before[kind][name][number] != now[kind][name][number]
    ]


_NUMBERS = (("queries", "versions"), ("tools", "version"))


def asks(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Modules of mechanisms that are not as they were: whether what they do is another is for a person to say."""
    old, new = before.get("modules", {}), now["modules"]
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def alike(one: Any, other: Any) -> bool:
    """Whether two behaviours are the same but for the last bits of numbers."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) <= _CLOSE * max(abs(one), abs(other), 1e-3)
    return bool(one == other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the file anew")
    wanted = parser.parse_args()
    before = json.loads(FILE.read_text()) if FILE.is_file() else {"queries": {}, "tools": {}}
    now = json.loads(json.dumps(found()))
    for name in asks(before, now):
        print(f"{name} changed: does it ask, release or charge anything else than before? Then raise a version.")
    told = [line for line in changed(before, now) if not (wanted.write and line.endswith("not in the file"))]
    for line in told:
        print(f"{line}: raise its version.")
    if told:
        return 1
    if wanted.write:
        FILE.write_text(json.dumps(now, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

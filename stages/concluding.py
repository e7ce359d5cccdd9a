"""Makes an audit of private rows always conclude, with a result or the reason for having none. It never ends a run.

Guarantee: a run goes on whatever the rows are. On two data sets that differ by one record an audit may come to a result
on one and to none on the other. If that ended the run, the existence of a release would tell of the record.
"""

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from palimpsest.audit.inconclusive import Inconclusive
from palimpsest.files import write_json
from stages.audited import metric

P = ParamSpec("P")


def concluding(writes: Callable[..., Iterable[Path]]) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make an audit write `Inconclusive` into its files when it raises any error, and end normally.

    Stops from outside still stop it: Ctrl-C, a signal, a disk that does not take even that.

    Args:
        writes: the audit's arguments -> all files that it writes.
    """

    def decorate(audit: Callable[P, None]) -> Callable[P, None]:
        @wraps(audit)
        def concluded(*args: P.args, **kwargs: P.kwargs) -> None:
            files = list(writes(*args, **kwargs))
            try:
                audit(*args, **kwargs)
            except Exception as error:
                conclude(Inconclusive.of(error), files)

        return concluded

    return decorate


def conclude(why: Inconclusive, files: Iterable[Path]) -> None:
    """Write into every file that there is no result, and say so."""
    for path in files:
        write_json(path, why.document)
    print(f"{'error: ' if why.failed else ''}{why.lines}", file=sys.stderr, flush=True)


def of_each(kind: str) -> Callable[..., Iterable[Path]]:
    """Return the file that an audit writes whose first argument is a subject: that subject's metric file."""
    return lambda name, *_: [metric(name, kind)]

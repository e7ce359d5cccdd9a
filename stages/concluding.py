"""An audit of private rows always concludes: with a result, or with why there is none. It never ends a run.

Guarantee: a run goes on whatever the rows are. On two data sets that differ by one record an audit may come to a result
on one and to none on the other. If that ended the run, whether there is a release would tell of the record.
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
    """Make an audit write `Inconclusive` into its files where it raises an error, whichever, and end well.

    What stops a process from without still does: Ctrl-C, a signal, a disk that takes not even that.

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
    """What an audit writes whose first argument names what is audited: a metric file of that."""
    return lambda name, *_: [metric(name, kind)]

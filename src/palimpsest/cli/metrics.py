"""`palimpsest metrics`: the budget, the charges and the stages' seconds of a workspace, for a monitor that others run.

Guarantee: what is told is on the public card too, or is a number of charges or of seconds. No private count is in it.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from palimpsest.cli.context import Context, opened
from palimpsest.errors import ParamsError
from palimpsest.files import read_json
from palimpsest.workspace import SECONDS

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

VARIABLE = "OTEL_METRICS_EXPORTER"  # OpenTelemetry's own
_GROUP, _CONSOLE = "opentelemetry_metrics_exporter", "console"


@dataclass(frozen=True)
class Reading:
    """One number of a workspace.

    Attributes:
        name: of the metric.
        unit: as OpenTelemetry writes units.
        labels: what it is of, beside the data set.
    """

    name: str
    value: float
    unit: str
    labels: tuple[tuple[str, str], ...] = ()


def readings(context: Context) -> Iterator[Reading]:
    """All that is told of an opened workspace: by the ledger, and by what stages noted of themselves."""
    books = context.ledger.books()
    balance = books.balance(context.asset.name)
    told = {"cap": balance.cap, "spent": balance.spent, "left": balance.left}
    yield from (Reading(f"palimpsest.budget.{name}", value, "{epsilon}") for name, value in told.items())
    charges = Counter((one.stage, one.variant, one.state) for one in books.charges(context.asset.name))
    for (stage, variant, state), number in charges.items():
        labels = (("stage", stage), ("variant", variant), ("state", state))
        yield Reading("palimpsest.queries", number, "{query}", labels)
    for path in sorted((context.workspace / SECONDS).glob("*.json")):
        stage, _, variant = path.stem.partition("@")
        of = (("stage", stage), ("variant", variant))
        yield Reading("palimpsest.stage.seconds", read_json(path)["seconds"], "s", of)


def tell(workspace: Path) -> None:
    """Hand every reading over, once, to the exporter that OTEL_METRICS_EXPORTER names; to the terminal by default.

    Raises:
        ParamsError: OpenTelemetry, or that exporter, is not installed.
    """
    context = opened(workspace)
    exporter = _exporter(os.environ.get(VARIABLE, _CONSOLE))
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    provider = MeterProvider([reader], Resource.create({"service.name": "palimpsest"}), shutdown_on_exit=False)
    meter, found = provider.get_meter("palimpsest"), list(readings(context))
    for name, one in {one.name: one for one in found}.items():

        def observed(_: CallbackOptions, name: str = name) -> list[Observation]:
            asset = {"asset": context.asset.name}
            return [Observation(each.value, {**asset, **dict(each.labels)}) for each in found if each.name == name]

        meter.create_observable_gauge(name, [observed], one.unit)
    provider.force_flush()  # reads and hands over
    provider.shutdown()


def _exporter(name: str) -> "MetricExporter":
    found = {each.name: each for each in entry_points(group=_GROUP)}
    if name not in found:
        raise ParamsError(
            f"OpenTelemetry has no exporter {name!r} here.",
            "Install the extra: pip install palimpsest[metrics]; and for another exporter than the console its own "
            f"package, such as opentelemetry-exporter-otlp. {VARIABLE} names it.",
        )
    make = found[name].load()
    exporter: MetricExporter = make(out=sys.stdout) if name == _CONSOLE else make()
    return exporter

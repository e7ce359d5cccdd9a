"""`palimpsest report`: the final table and the pages."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from palimpsest.cli.context import opened
from palimpsest.errors import DataError
from palimpsest.files import read_json

_COLUMNS = (
    "variant", "epsilon", "retention", "gap closed", "membership AUC", "n-gram excess", "facts carried", "leaked",
)  # fmt: skip


def show_report(workspace: Path) -> None:
    """Print the final table, what is left of the budget, and the report's path.

    Raises:
        DataError: if there is no report yet.
    """
    context, console = opened(workspace), Console()
    path = workspace / "reports" / "summary.json"
    if not path.is_file():
        raise DataError("There is no report yet.", "Make it with `palimpsest run`.")
    summary = read_json(path)
    console.print(_table(summary["rows"]))
    console.print("Retention and gap closed by TF-IDF / by MiniLM, both with logistic regression; n-grams of 5 words.")
    balance = context.ledger.balance(context.asset.name)
    console.print(
        f"Budget left: epsilon [bold]{balance.left:.3f}[/bold] of {balance.cap:g} at delta {context.asset.delta:.3g} "
        f"({balance.spent:.3f} spent)."
    )
    console.print(f"Report: [bold]{(workspace / 'reports' / 'internal.html').resolve()}[/bold] (private zone)")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Result", title_justify="left")
    for column in _COLUMNS:
        table.add_column(column)
    for row in rows:
        table.add_row(
            row["variant"], _epsilon(row), _scores(row, "retention"), _scores(row, "gap_closed"), _auc(row), _excess(row),
            _share(row["facts_carried"]), _leaked(row),
        )  # fmt: skip
    return table


def _epsilon(row: dict[str, Any]) -> str:
    if row["role"] == "release":
        return f"{row['epsilon_proved']:.3f}"
    return {"public_only": "0", "real": "-"}.get(row["role"], "inf (reference)")


def _scores(row: dict[str, Any], field: str) -> str:
    if row["role"] in ("real", "public_only") and field == "gap_closed":
        return "-"
    scores = {score["evaluator"]: score[field] for score in row["scores"]}
    shown = [f"{scores[name]:.3f}" if scores.get(name) is not None else "n/a" for name in ("tfidf_lr", "minilm_lr")]
    return " / ".join(shown)


def _auc(row: dict[str, Any]) -> str:
    found = row["membership"]
    return "-" if found is None else f"{_interval(found['auc'])} {found['verdict']}"


def _excess(row: dict[str, Any]) -> str:
    return "-" if row["ngram_excess"] is None else _interval(row["ngram_excess"]["rate"], 4)


def _interval(value: dict[str, float], digits: int = 3) -> str:
    return f"{value['value']:.{digits}f} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def _share(share: dict[str, int] | None) -> str:
    return "-" if share is None else f"{share['count']}/{share['total']}"


def _leaked(row: dict[str, Any]) -> str:
    parts = [row["individual_leaked"], row["canaries_leaked"]]
    if all(part is None for part in parts):
        return "-"
    return " + ".join(_share(part) for part in parts)

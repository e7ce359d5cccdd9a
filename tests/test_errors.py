"""The page of errors has every error that the code makes, each in two parts."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import ROOT, Template, render, templates
from palimpsest.api import PricedPlan
from palimpsest.audit.membership import bag_of_words_control
from palimpsest.errors import PalimpsestError
from palimpsest.methods.dp_lm.model import add_adapters
from palimpsest.models import sources
from palimpsest.models.tokens import specials
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.report.release import keys
from palimpsest.report.release.gates import check_attacks, refuse
from palimpsest.report.results import Results
from palimpsest.report.sections import METRICS
from palimpsest.work.before import check_files
from palimpsest_lab.audits.incontext_model import Chooser
from palimpsest_lab.audits.incontext_settings import InContext
from palimpsest_lab.stages import incontext_eval, prompt_mia
from stages.public_eval import public_test


@pytest.fixture(scope="module")
def every() -> tuple[Template, ...]:
    return templates()


def test_the_page_has_every_error_with_its_remedy(every: tuple[Template, ...]) -> None:
    page = " ".join(render().replace("\\", "").split())  # what Markdown would take for its own is escaped
    rows = [f"| {each.problem} | {each.remedy} | `{each.kind}` |" for each in every]
    assert [row for row in rows if " ".join(row.split()) not in page] == []


def test_every_error_says_what_is_wrong_and_what_to_do(every: tuple[Template, ...]) -> None:
    """Sentences; nothing is left that comes from a caller."""
    halves = [each for each in every for part in each[1:3] if not part.rstrip().endswith((".", "›"))]
    handed_on = [each for each in every if "‹problem›" in each.problem or each.remedy == ""]
    assert halves + handed_on == []


def test_every_line_that_raises_an_error_of_ours_has_its_row(every: tuple[Template, ...]) -> None:
    """Found by words alone, which know nothing of classes and callers: the files are the same."""
    kinds = "|".join({each.kind for each in every})
    raising = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "stages", "flows")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(rf"(raise|yield|return) ({kinds})\($", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert raising - {each.file for each in every} == set()


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ("‹name› has no column ‹column›; it has ‹number› columns.", "MissingColumn"),  # by an `__init__` of its own
        ("‹name›, ‹place›: column ‹column› contains a NUL character.", "RecordError"),  # by a function and by another
        ("‹name› is UTF-16.", "DataError"),  # from a table
        ("The disk is full.", "DataError"),  # from a table, whole
        ("--budget is ‹budget›; allowed is above 0 and at most 1e+06.", "ParamsError"),  # from what `init` collects
        ("There is no params.yaml here.", "ParamsError"),  # with a constant filled in
    ],
)
def test_errors_are_looked_through_to_what_a_user_reads(every: tuple[Template, ...], problem: str, kind: str) -> None:
    assert (problem, kind) in {(each.problem, each.kind) for each in every}


# Those that no other test provokes: `make coverage`, then `python -m bench.errors .coverage`.


def measured(path: Path) -> None:
    """A metric file of another version."""
    metric = METRICS[0]
    Results({metric.name: {"dp3": {}}}).of(metric)


def unreadable_key(path: Path) -> None:
    """A place below something that is no folder."""
    (path / "file").write_text("")
    keys.new_key(path / "file" / "folder" / "key.pem")


def without_weights(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "package_folder", lambda _: path)
        sources.resolve_encoder("embedded")


def without_peft(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "peft", None)
        add_adapters(SimpleNamespace(), 2, 0)  # type: ignore[arg-type]


def without_pandas(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        str(PricedPlan(SimpleNamespace(lines=())))  # type: ignore[arg-type]


def without_room(path: Path) -> None:
    params = load(ROOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1))
        check_files(SimpleNamespace(params=params, workspace=ROOT))  # type: ignore[arg-type]


def changed(section: str, **values: Any) -> Params:
    params = load(ROOT)
    return params.model_copy(update={section: getattr(params, section).model_copy(update=values)})


def prompts(judge: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_mia, "judge_of", lambda *_: judge)
        prompt_mia.chooser_of(changed("utility", in_context=InContext()), "dp3")


class Narrow(Chooser):
    """A judge that holds less than one demonstration."""

    context = 8

    def __init__(self) -> None: ...

    def needs(self, shots: int) -> int:
        return 9


PROVOKED: dict[str, Callable[[Path], object]] = {
    "The audit subset has no member or no non-member": lambda _: bag_of_words_control([], ["a"], seed=0),
    "no end-of-text token": lambda _: specials(SimpleNamespace(eos_token_id=None)),  # type: ignore[arg-type]
    "The driver for mysql://books/ledger is not installed": lambda _: Ledger.open("mysql://books/ledger"),
    "No key can be written to": unreadable_key,
    "is not what this version writes": measured,
    "The installed code of method select was not examined": lambda _: refuse(check_attacks(["select"], {})),
    "The embedded encoder has no weights": without_weights,
    "lora_rank needs the library peft": without_peft,
    "pandas is not installed": without_pandas,
    "The disk is nearly full": without_room,
    "no test file was declared public": lambda _: public_test(changed("dataset", public_test=None)),
    "utility.in_context is null": lambda _: incontext_eval.settings_of(changed("utility", in_context=None)),
    "The attack on prompts asks a judge on this machine": lambda _: prompts(object()),
    "need 9 positions; the judge has 8": lambda _: prompts(Narrow()),
}


@pytest.mark.parametrize("words", PROVOKED)
def test_an_error_is_raised(words: str, tmp_path: Path) -> None:
    with pytest.raises(PalimpsestError, match=re.escape(words)) as told:
        PROVOKED[words](tmp_path)
    assert told.value.remedy

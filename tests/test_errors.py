"""docs/errors.md has every error that the code makes, each in two parts."""

import re

import pytest

from bench.errors import PAGE, ROOT, Template, render, templates


@pytest.fixture(scope="module")
def every() -> tuple[Template, ...]:
    return templates()


def test_the_page_is_what_the_code_says() -> None:
    """Write it again with `make graph` after a change of an error."""
    assert PAGE.read_text(encoding="utf-8") == render()


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
        ("--budget is ‹budget›; allowed is above 0 and finite.", "ParamsError"),  # from what `init` collects
        ("There is no params.yaml here.", "ParamsError"),  # with a constant filled in
    ],
)
def test_errors_are_looked_through_to_what_a_user_reads(every: tuple[Template, ...], problem: str, kind: str) -> None:
    assert (problem, kind) in {(each.problem, each.kind) for each in every}

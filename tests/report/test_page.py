"""The page as a browser sees it: drawn, quiet, offline, and deaf to names that are code."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from in_browser import (
    Open,
    assert_can_be_read_out,
    assert_drawn,
    assert_fits_on_paper,
    assert_marked_private,
    assert_quiet,
)
from report_world import (
    LABELS,
    decoder,
    facts,
    fidelity,
    generation,
    in_context,
    membership,
    query,
    receipt,
    results,
    shots_written,
    text_membership,
    utility,
    world_ledger,
    world_metrics,
    world_models,
    world_of_audits,
    world_of_choosing,
    world_of_embedding,
    world_of_writing,
    world_provenance,
    world_receipts,
    world_schema,
    world_stages,
)
from selenium import webdriver
from selenium.webdriver.common.by import By

from palimpsest.files import write_json
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.page import claims, render_internal
from palimpsest.report.sections.base import digest
from palimpsest.report.statement import statement
from palimpsest.report.summary import summarise

HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'>{{ 7 * 7 }}"
REFUTED = "An attack refuted the privacy claim of dp3: a proof or the code is wrong."


def page(
    metrics: dict[str, dict[str, Any]] | None = None,
    receipts: dict[str, Receipt] | None = None,
    ledger: LedgerSummary | None = None,
    stages: list[dict[str, Any]] | None = None,
    provenance: dict[str, str] | None = None,
    models: dict[str, Any] | None = None,
    decoders: dict[str, Any] | None = None,
) -> str:
    metrics, receipts = metrics or world_metrics(), receipts or world_receipts()
    ledger, stages = ledger or world_ledger(), stages or world_stages()
    found = results(metrics, models or world_models(), decoders)
    summary = summarise(found, receipts, ledger)
    promise = statement(receipts, ledger, world_schema(), stages)
    return render_internal(summary, found, receipts, ledger, promise, stages, provenance or world_provenance())


@cache
def usual() -> str:
    """The page of the world as it is."""
    return page()


@cache
def drawn(world: Callable[[], dict[str, Any]]) -> str:
    """The page of another world."""
    return page(**world(), decoders={"prefix": decoder()} if world is world_of_embedding else None)


def test_the_page_on_a_desk(opened: Open) -> None:
    shown = opened(usual())
    assert assert_drawn(shown) == 15
    assert_marked_private(shown)
    assert_can_be_read_out(shown)
    assert_quiet(shown)
    widths = "const box = document.querySelector('.verdicts'); return [box.scrollWidth, box.clientWidth]"
    needed, there = shown.execute_script(widths)
    assert needed <= there  # no column is cut
    assert_fits_on_paper(shown)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_page_with_audits_of_the_rows(opened: Open, width: int, scheme: str) -> None:
    shown = opened(drawn(world_of_audits), width, scheme)
    assert assert_drawn(shown) == 23
    assert_can_be_read_out(shown)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    (line,) = (line for line in lines(shown, "Verdict per variant") if line[0].startswith("dp3"))
    assert line[4] == "not refuted"
    assert_quiet(shown)


def test_an_attack_on_the_rows_alone_refutes_as_one_on_the_model_does() -> None:
    world = world_of_audits()
    world["metrics"]["dp3"]["text_membership"] = text_membership("dp3", 0.1, 2.98, 9, right=200)
    seen = first_screen(page(**world))
    assert REFUTED in seen
    assert '<b class="stop">refuted</b>' in seen


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_with_written_rows(opened: Open, width: int) -> None:
    shown = opened(drawn(world_of_writing), width)
    assert assert_drawn(shown) == 17
    assert_can_be_read_out(shown)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    (line,) = shown.find_elements(By.XPATH, "//table[contains(caption, 'What was written')]/tbody/tr")
    cells = [cell.text for cell in line.find_elements(By.XPATH, "./*")]
    assert cells[:-1] == ["predict3", "predict", "0.731", "96", "40", "12,345", "83.7%", "412"]
    assert cells[-1].split("\n") == ["381", "less 27 by near, 4 by public"]
    assert_quiet(shown)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_with_chosen_rows(opened: Open, width: int) -> None:
    shown = opened(drawn(world_of_choosing), width)
    assert assert_drawn(shown) == 18
    assert_can_be_read_out(shown)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    lines = shown.find_elements(By.XPATH, "//table[contains(caption, 'What was chosen')]/tbody/tr")
    first, second = ([cell.text for cell in line.find_elements(By.XPATH, "./*")] for line in lines)
    assert first == ["evolve3", "evolve", "3.25", "2", "10", "900", "4,321", "98,765", "891"]
    assert second == ["pick3", "select", "1.36", "–", "–", "900", "–", "–", "891"]
    assert_quiet(shown)


def lines(shown: webdriver.Chrome, caption: str) -> list[list[str]]:
    """The cells of a table, row by row."""
    found = shown.find_elements(By.XPATH, f"//table[starts-with(normalize-space(caption), '{caption}')]/tbody/tr")
    return [[cell.text for cell in line.find_elements(By.XPATH, "./*")] for line in found]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_with_evolved_embeddings(opened: Open, width: int) -> None:
    shown = opened(drawn(world_of_embedding), width)
    assert assert_drawn(shown) == 21
    assert_can_be_read_out(shown)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    assert lines(shown, "What was chosen") == [
        ["embed3", "embed", "2.75", "3", "1", "900", "–", "–", "891"],
        ["deep3", "sentdp", "0.87", "–", "–", "900", "–", "–", "891"],
    ]
    assert lines(shown, "What was replaced") == [["words", "3 per word (not per record)", "20", "20,000", "891"]]
    assert lines(shown, "Decoders") == [
        ["prefix", "small", "5,400,000", "500", "0.914", "98.1%", "0.672", "0.318", "12.3%", "87.5%"]
    ]
    assert lines(shown, "What a decoder writes") == [
        ["prefix", "Prices rose again.", "Prices have risen again.", "0.93"]
    ]
    assert lines(shown, "What was readable") == [
        ["embed3", "kept", "delivery", "41.5", "the parcel came late"],
        ["embed3", "dropped", "–", "987", "late parcel the the <b>"],
    ]
    assert_quiet(shown)


def test_answers_stand_under_their_number_of_demonstrations(opened: Open) -> None:
    shown = opened(drawn(world_of_embedding))
    found = lines(shown, "Answers in context")
    assert [line[:2] for line in found] == [
        ["zero-shot", "0"], ["real", "∞"], ["public_only", "0"], ["inf", "∞"],
        ["words", "3 per word (not per record)"], ["embed3", "2.99"], ["deep3", "3"],
    ]  # fmt: skip
    assert found[0][2:] == ["42.0%", "–", "–"]
    assert found[5][2:] == ["–", "49.0%\n± 1.6% over 5 draws", "55.0%\n± 1.6% over 5 draws"]


def test_an_epsilon_of_words_is_never_shown_as_one_of_records() -> None:
    """In the verdicts, among the answers, in the ledger, and in the tables behind figures."""
    world, ledger = world_of_embedding(), world_ledger()
    *others, last = ledger.charges
    ledger = replace(ledger, charges=(*others, replace(last, variant="words", epsilon=None)))
    html = page(**world, ledger=ledger)
    verdict = html.partition('<th scope="row">words<small>reference, ')[2].partition("</tr>")[0]
    assert '<td data-label="Proved ε">3 per word (not per record)</td>' in verdict
    assert "∞" not in verdict
    answer = html.partition("Answers in context")[2].partition('<th scope="row">words</th>')[2].partition("</tr>")[0]
    assert '<td data-label="ε">3 per word (not per record)</td>' in answer
    books = html.partition("<caption>Ledger</caption>")[2].partition("</table>")[0]
    assert "<td>words</td>" in books
    assert '<td class="n">3 per word (not per record)</td>' in books
    figures = html.partition('<section id="figures"')[2].partition("</section>")[0]
    rows = [row for row in figures.split("<tr>") if row.startswith("<td>words</td>") and "incontext" not in row]
    assert sum("3 per word (not per record)" in row for row in rows) == 2 + 2  # two evaluators, two numbers of shots


def test_what_there_is_none_of_has_no_table() -> None:
    absent = (
        "What was replaced", "Answers in context", "Decoders", "What a decoder writes", "What was readable",
        "What was chosen", "What was written",
    )  # fmt: skip
    assert [name for name in absent if name in usual()] == []


def test_what_a_writer_without_a_clip_wrote_is_shown() -> None:
    world = world_of_writing()
    world["metrics"]["shots"], world["receipts"]["shots"] = {"generation": generation("shots")}, shots_written("shots")
    html = page(**world)
    assert '<td data-label="Method">fewshot</td>' in html
    assert '<td data-label="Clip" class="n">–</td>' in html


def test_a_model_that_cannot_judge_is_said_to_first() -> None:
    world = world_of_writing()
    assert "cannot judge demonstrations" not in drawn(world_of_writing)
    for kinds in world["metrics"].values():
        if "incontext" in kinds:
            kinds["incontext"] = in_context("real", {2: 0.4}, judges=False)
    html = page(**world)
    assert "<figcaption>Real demonstrations do not beat no demonstrations" in html
    assert "cannot judge demonstrations, and these figures say nothing about the rows. A language" in html
    assert "<small><b>Real demonstrations do not beat" in html
    assert "say nothing about the rows. </b>Real test rows" in html


def test_the_page_on_a_phone_in_the_dark(opened: Open) -> None:
    shown = opened(usual(), 390, "dark")
    assert assert_drawn(shown) == 15
    assert shown.execute_script("return document.documentElement.scrollWidth") <= 390
    shown.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert shown.execute_script("return document.documentElement.scrollWidth") <= 390
    assert_quiet(shown)
    color = "return getComputedStyle(document.querySelector('.plot .role-axis-label text')).fill"
    dark = shown.execute_script(color)
    shown.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    assert shown.execute_script(color) != dark


def hostile_world() -> dict[str, Any]:
    metrics, receipts, stages, ledger = world_metrics(), world_receipts(), world_stages(), world_ledger()
    for name, kinds in metrics.items():
        kinds["utility"] = utility(name, 0.8, 5, labels=(HOSTILE, *LABELS))
    receipts[HOSTILE] = receipt(HOSTILE, 1.0)
    metrics[HOSTILE] = {"facts": facts(HOSTILE, 10, 1, 3), "membership": membership(HOSTILE, 0.1, 1.0, 4)}
    stages[0] |= {"name": HOSTILE, "desc": HOSTILE}
    first, *others = ledger.charges
    ledger = replace(ledger, asset=HOSTILE, charges=(replace(first, query=HOSTILE, variant=HOSTILE), *others))
    return {"metrics": metrics, "receipts": receipts, "stages": stages, "ledger": ledger}


def test_a_name_that_is_code_stays_a_name(opened: Open) -> None:
    shown = opened(page(**hostile_world(), provenance={"python": HOSTILE, "created": HOSTILE}))
    assert shown.execute_script("return window.broken") is None
    assert shown.find_elements(By.CSS_SELECTOR, "img") == []
    assert len(shown.find_elements(By.CSS_SELECTOR, "script")) == 3
    assert HOSTILE in shown.find_element(By.TAG_NAME, "h1").text
    labels = shown.execute_script("return [...document.querySelectorAll('.plot text')].map(part => part.textContent)")
    assert any(label.startswith("</script><script>") for label in labels)
    assert_drawn(shown)
    assert_quiet(shown)


def without(metrics: dict[str, dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {name: {key: value for key, value in kinds.items() if key != kind} for name, kinds in metrics.items()}


def test_real_data_without_facts_and_labels_with_shapes(opened: Open) -> None:
    metrics = without(world_metrics(), "facts")
    for name, kinds in metrics.items():
        kinds["utility"] = utility(name, 0.8, 6, labels=(), public=0.9)
    metrics["dp3"]["fidelity"] = fidelity("dp3", 0.5)
    shown = opened(page(metrics=metrics))
    assert assert_drawn(shown) == 15
    assert "n/a" in shown.find_element(By.CSS_SELECTOR, ".verdicts").text
    assert_quiet(shown)


def test_a_release_that_was_not_measured(opened: Open) -> None:
    metrics = {"inf": world_metrics()["inf"], "real": world_metrics()["real"]}
    shown = opened(page(metrics=metrics))
    assert "dp3 was not attacked" in shown.find_element(By.CSS_SELECTOR, ".alerts").text
    assert_drawn(shown)
    assert_quiet(shown)


def test_nothing_measured_and_nothing_charged(opened: Open) -> None:
    ledger = replace(world_ledger(), charges=(), spent_epsilon=0.0, left_epsilon=8.0)
    stages = [{key: value for key, value in stage.items() if key != "state"} for stage in world_stages()]
    shown = opened(page({"real": {}}, {"inf": receipt("inf", None)}, ledger, stages))
    assert "NOTHING RELEASED" in shown.find_element(By.CSS_SELECTOR, ".alerts").text
    assert_quiet(shown)


def first_screen(html: str) -> str:
    """What stands before the verdict table."""
    return html.partition("<main>")[2].partition("<table")[0]


def test_fixed_noise_stops_the_reader() -> None:
    receipts = world_receipts() | {"dp3": receipt("dp3", 2.98, noise_fixed=True)}
    seen = first_screen(page(receipts=receipts))
    assert "NOT PRIVATE: The noise of dp3 is fixed by a seed." in seen
    assert '<b class="stop">not private</b>' in seen
    assert "NOT PRIVATE" not in first_screen(usual())


@pytest.mark.parametrize(
    ("accountant", "shown", "hidden"),
    [
        ("pld", ["Privacy-loss distributions", "Accountants agree"], ["zCDP, tight", "Second accountant"]),
        ("zcdp", ["zCDP, tight conversion", "Accountants agree"], ["Privacy-loss dist", "Second accountant"]),
        ("rdp", ["Second accountant", "none takes all"], ["Privacy-loss dist", "zCDP, tight", "Accountants agree"]),
    ],
)
def test_the_epsilon_stands_under_the_name_of_its_accountant(
    accountant: str, shown: list[str], hidden: list[str]
) -> None:
    receipts = world_receipts() | {"dp3": receipt("dp3", 2.98, accountant=accountant)}
    html, ledger = page(receipts=receipts), world_ledger()
    assert [word for word in shown if word not in html] + [word for word in hidden if word in html] == []
    promise = statement(receipts, ledger, world_schema(), world_stages())
    measured = results(world_metrics())
    summary = summarise(measured, receipts, ledger)
    ids = {claim.id for claim in claims(summary, measured, receipts, ledger, promise)}
    assert ("A-dp3" in ids) == (accountant != "rdp")


def test_parts_of_the_data_set_are_shown_with_each_query() -> None:
    parts = tuple(query("dp3", "votes", f"{i}", ("batch", str(i))) for i in range(3))
    body = receipt("dp3", 2.98)
    html = page(receipts=world_receipts() | {"dp3": replace(body, queries=body.queries + parts)})
    assert "3 queries over 3 disjoint parts of the data set" in html
    assert ["<td>batch: 2</td>" in html, "<td>all</td>" in html] == [True, True]
    assert "disjoint parts" not in usual()


def test_a_refuted_claim_stops_the_reader_and_is_no_longer_proved() -> None:
    metrics, receipts, ledger = world_metrics(), world_receipts(), world_ledger()
    metrics["dp3"]["membership"] = membership("dp3", 0.05, 2.98, 11, right=200)
    seen = first_screen(page(metrics=metrics))
    assert REFUTED in seen
    assert '<b class="stop">refuted</b>' in seen
    promise = statement(receipts, ledger, world_schema(), world_stages())
    measured = results(metrics)
    found = {c.id: c for c in claims(summarise(measured, receipts, ledger), measured, receipts, ledger, promise)}
    assert {found["P-dp3"].status, found["P-total"].status} == {"not covered"}


def test_ratios_are_shown_with_their_intervals() -> None:
    metrics = world_metrics()
    found = metrics["dp3"]["utility"]["evaluators"]["tfidf_lr"]
    found |= {
        "retention": {"value": 0.8123, "low": 0.7012, "high": 0.9034},
        "gap_closed": {"value": 0.51, "low": 0.42, "high": 0.63},
    }
    seen = page(metrics=metrics)
    assert "81.2%<small>70.1% to 90.3%</small>" in seen
    assert "51%<small>42% to 63%</small>" in seen


def test_a_digest_is_that_of_the_file(tmp_path: Path) -> None:
    write_json(tmp_path / "facts.json", world_metrics()["dp3"]["facts"])
    written = (tmp_path / "facts.json").read_bytes()
    assert digest(json.loads(written)) == hashlib.sha256(written).hexdigest()


def test_claims_are_cited_by_their_own_id() -> None:
    metrics, receipts, ledger = world_metrics(), world_receipts(), world_ledger()
    promise = statement(receipts, ledger, world_schema(), world_stages())
    measured = results(metrics)
    found = claims(summarise(measured, receipts, ledger), measured, receipts, ledger, promise)
    assert len({claim.id for claim in found}) == len(found)
    assert {claim.status for claim in found} == {"proved", "tested", "assumed", "not covered"}

"""What the settings of embedding evolution and of its baselines refuse."""

from collections.abc import Mapping
from typing import Any

import pytest

from palimpsest.errors import ParamsError
from palimpsest.params.load import parse
from palimpsest.params.schema import Params
from tests.params.test_load import body

SENTDP = {"rows": 50, "label_counts": "prior", "prior": None, "histogram_share": 0.1, "batch": 1, "directions": 10}
CUSTEXT = {"token_epsilon": 3.0, "neighbours": 20, "vocabulary": 500}
LIMITED = {"kind": "limited_domain", "domain": 300, "delta_share": 0.5}


def changed(*, run: Mapping[str, Any] | None = None, **embed: Any) -> Params:
    """The demo's settings with other ones of embed3."""
    content = body()
    content["variants"]["embed3"]["embed"] |= embed
    content["run"] |= run or {}
    return parse(content)


def with_row(name: str, variant: Mapping[str, Any], **run: Any) -> Params:
    """The demo's settings with one more variant that runs."""
    content = body()
    content["variants"][name] = variant
    content["run"] |= run
    content["run"]["evaluate"].append(name)
    return parse(content)


def test_either_selection_is_read() -> None:
    params = changed(selection=LIMITED, start=300, offspring=3000, parents=30)
    assert params.variants["embed3"].settings.selection.domain == 300


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"parents": 500}, "parents is 500; allowed is at most start and offspring, 200"),
        ({"selection": {**LIMITED, "domain": 5}}, "parents is 40; allowed is at most selection.domain, 5"),
        ({"selection": {**LIMITED, "delta_share": 0.51}}, "delta_share"),
        ({"readable": {"quantile": 0.9, "perplexity": 50.0}}, "either quantile or perplexity"),
        ({"readable": {"quantile": None, "perplexity": None}}, "either quantile or perplexity"),
        ({"class_means": {"share": 0.995, "domain": 0.5, "pool": 1}}, "leave nothing of the budget"),
        (
            {"decode": {"samples": 2, "corrections": 2, "temperature": 1, "top_p": 1, "max_tokens": 9, "batch": 9}},
            "together must be below decode.samples",
        ),
        ({"run": {"eda_evolve": {"embed3": "large"}}}, "run.eda_evolve names 'large'"),
        ({"run": {"decoder_pretrain": ["large"]}}, "run.decoder_pretrain names 'large'"),
        ({"zero_shot": "words"}, "variants.embed3.zero_shot names 'words'; allowed are those of zero_shot"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParamsError, match=problem):
        changed(**changes)


def test_filters_that_need_a_model_are_refused() -> None:
    content = body()
    content["variants"]["embed3"]["embed"]["filters"]["chain"] = ["perplexity"]
    with pytest.raises(ParamsError, match="filters: chain names"):
        parse(content)


def zero_shot(author: Mapping[str, Any], **said: Any) -> Params:
    """The demo's settings where embed3 begins with what an author wrote."""
    content = body()
    content["variants"]["embed3"]["embed"] |= {"zero_shot": "words", "start": 300}
    content["authors"]["writer"] = author
    content["zero_shot"] = {"words": said}
    content["run"]["zero_shot"] = {"words": "writer"}
    return parse(content)


def test_embeddings_begin_with_what_an_author_wrote() -> None:
    params = zero_shot({"kind": "base", "start": "prompt", "max_tokens": 8})
    assert (params.zero_shot["words"].texts, params.run.zero_shot) == (300, {"words": "writer"})
    assert zero_shot({"kind": "base", "start": "prompt", "max_tokens": 8}, texts=9, beside=True).zero_shot


@pytest.mark.parametrize(
    ("author", "said", "problem"),
    [
        ({"kind": "corpus"}, {}, "run.zero_shot gives 'words' the author 'writer', which begins with public texts"),
        ({"kind": "base", "start": "whole", "max_tokens": 8}, {}, "allowed is one that writes behind a prompt alone"),
        ({"kind": "base", "start": "prompt", "max_tokens": 8}, {"texts": 299}, "start is 300; allowed is at most"),
    ],
)
def test_an_author_of_a_first_population_writes_and_writes_enough(
    author: Mapping[str, Any], said: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(ParamsError, match=problem):
        zero_shot(author, **said)


def test_a_baseline_runs_when_it_is_named() -> None:
    deep = {"method": "sentdp", "purpose": "release", "epsilon": 3.0, "sentdp": SENTDP}
    assert with_row("deep", deep, sentdp=["deep"]).charged["deep"].epsilon == 3.0


@pytest.mark.parametrize(("purpose", "epsilon"), [("release", 3.0), ("reference", 3.0)])
def test_words_are_never_taken_for_records(purpose: str, epsilon: float) -> None:
    """A token-level epsilon is in another unit: a row of that kind is a reference, whatever it is called."""
    row = {"method": "custext", "purpose": purpose, "epsilon": epsilon, "custext": CUSTEXT}
    with pytest.raises(ParamsError, match="protects single words, not records"):
        with_row("words", row, custext=["words"])
    assert with_row("words", {**row, "purpose": "reference", "epsilon": float("inf")}, custext=["words"])


def test_no_release_chooses_from_rows_whose_words_were_replaced() -> None:
    words = {"method": "custext", "purpose": "reference", "epsilon": float("inf"), "custext": CUSTEXT}
    votes = {"neighbours": 1, "threshold": 0.0, "selection": "rank"}
    voted = {"method": "vote_select", "purpose": "release", "epsilon": 4.0}
    content = body()
    content["variants"] |= {"words": words, "voted": voted | {"vote_select": {"keep": 0.5, "votes": votes, "batch": 1}}}
    content["run"] |= {"custext": ["words"], "vote_select": {"voted": "words"}}
    content["run"]["evaluate"] += ["words", "voted"]
    with pytest.raises(ParamsError, match="meant for release, but its source 'words' is not"):
        parse(content)


def test_texts_that_are_encoded_together_are_flagged() -> None:
    content = body()
    content["variants"]["embed3"]["embed"]["batch"] = 64
    (flag,) = parse(content).flags()
    assert flag.startswith("embed3: batch is above 1")


@pytest.mark.parametrize(("key", "value"), [("eda_evolve", {"embed3": "small"}), ("custext", ["words"])])
def test_methods_that_write_plain_text_are_for_tasks_of_plain_text(key: str, value: Any) -> None:
    content = body()
    names = list(value)
    content["dataset"] |= {"task": "span", "labels": {}}
    content["variants"]["words"] = {"method": "custext", "purpose": "reference", "epsilon": float("inf")}
    content["variants"]["words"]["custext"] = CUSTEXT
    empty = {"dp_train": [], "discriminator": {}, "dp_lm": {}, "embedding_audit": [], "private_predict": {}}
    content["run"] |= empty | {"select": [], "private_evolve": {}, "eda_evolve": {}} | {key: value, "evaluate": names}
    with pytest.raises(ParamsError, match="is for classify and text"):
        parse(content)

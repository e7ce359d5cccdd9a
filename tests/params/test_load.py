"""Each wrong params.yaml is refused with the key, the value and what is allowed."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palimpsest.errors import ParamsError
from palimpsest.models.chat.settings import Prompts
from palimpsest.params.file import FILE
from palimpsest.params.load import LEDGER_VARIABLE, ledger_url, load, loads, parse
from tests.settings_file import demo

DEMO = Path(__file__).parents[2] / FILE
Change = Callable[[dict[str, Any]], None]


def body() -> dict[str, Any]:
    """Every value of the demo; nothing leaves, so that any variant may go."""
    content = demo()
    content["run"]["audit"], content["release"]["variants"] = [], []
    return content


def setting(path: str, value: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        *sections, key = path.split(".")
        for section in sections:
            content = content[section]
        content[key] = value

    return change


def refused(*changes: Change) -> str:
    content = body()
    for change in changes:
        change(content)
    with pytest.raises(ParamsError) as caught:
        parse(content)
    return caught.value.problem


REFUSED = {
    "delta below what numbers tell": (
        "privacy.budget.delta",
        1e-13,
        ["privacy.budget.delta", "1e-13", "at least 1e-12"],
    ),
    "delta above 1/n": ("privacy.budget.delta", 2e-4, ["privacy.budget.delta", "0.0002", "10000 records"]),
    "own rows called invented": (
        "dataset.private",
        "own.csv",
        ["dataset.private", "'own.csv'", "all files are the invented ones in data/raw"],
    ),
    "own rows beside the invented ones": (
        "dataset.public",
        "data/raw/own.jsonl",
        ["dataset.public", "'data/raw/own.jsonl'", "all files are the invented ones in data/raw"],
    ),
    "a world that is a path": ("world", "../../own", ["world", "'../../own'"]),
    "a person without a number": (
        "dataset.unit",
        {"column": "who", "max_rows": 1, "persons": None, "missing": "drop"},
        ["dataset.unit", "column and persons go together"],
    ),
    "a number without a person": ("dataset.unit.persons", 100, ["dataset.unit", "column and persons go together"]),
    "a cap on nobody": ("dataset.unit.max_rows", 2, ["dataset.unit", "nothing is capped"]),
    "a column without a name": ("dataset.unit.column", "", ["dataset.unit.column", "''"]),
    "rows of nobody pooled": ("dataset.unit.missing", "pool", ["dataset.unit.missing", "'pool'", "'drop' or 'refuse'"]),
    "more persons than records": (
        "dataset.unit",
        {"column": "who", "max_rows": 1, "persons": 10001, "missing": "drop"},
        ["unit.persons is 10001", "n_public"],
    ),
    "texts for persons": (
        "dataset.unit",
        {"column": "text", "max_rows": 1, "persons": 100, "missing": "drop"},
        ["text and unit.column name the same column"],
    ),
    "delta of 1": ("privacy.budget.delta", 1.0, ["privacy.budget.delta", "1.0", "less than 1"]),
    "batch above n": ("lms.dp3.train.batch", 10001, ["dp3: train.batch", "10001", "10000"]),
    "audit above n": ("audit.size", 10001, ["audit.size", "10001", "10000"]),
    "unknown label in prior": (
        "lms.dp3.train.prior",
        {"returns": 1.0, "stranger": 1.0},
        ["lms.dp3.train.prior", "stranger", "dataset.labels"],
    ),
    "negative prior": ("lms.dp3.train.prior", {"returns": -1.0}, ["lms.dp3.train", "prior", ">= 0"]),
    "unknown key": ("audit.sizes", 3, ["audit.sizes", "not a key"]),
    "wrong type": ("dataset.n_public", "many", ["dataset.n_public", "'many'", "whole number"]),
    "not one of": ("dataset.task", "guess", ["dataset.task", "'guess'", "'classify', 'span', 'text' or 'json'"]),
    "too small": ("utility.seeds", 1, ["utility.seeds", "1", "greater than or equal to 3"]),
    "run of nothing": ("run.dp_lm", {"dp3": "dp3", "dp9": "inf"}, ["run.dp_lm", "'dp9'", "dp3"]),
    "evaluate misses one": ("run.evaluate", ["dp3"], ["run.evaluate", "['dp3']", "'inf'"]),
    "evaluate names another": ("run.evaluate", ["dp3", "real"], ["run.evaluate", "'real'", "'inf'"]),
    "infinite release": ("lms.dp3.epsilon", math.inf, ["lms.dp3", ".inf", "purpose: reference"]),
    "infinite budget": ("privacy.budget.epsilon", math.inf, ["privacy.budget.epsilon", "inf", "finite"]),
    "one label": ("dataset.labels", {"returns": "x"}, ["dataset", "labels", "two"]),
    "no schema": ("dataset.json_schema", {"type": "object", "properties": {"a": {}}}, ["json_schema", "classify"]),
    "whole row": ("dataset.text", "*", ["dataset", "'*'", "task json"]),
    "text as label": ("dataset.label", "text", ["dataset", "'text'", "same column"]),
    "no encoder to tune": ("utility.evaluators", ["finetuned"], ["utility.evaluators", "models.classifier", "null"]),
    "no such model": ("run.discriminator", {"judge3": "dp9"}, ["run.discriminator", "'dp9'", "run.dp_train"]),
    "filter of a language model": (
        "run.dp_lm",
        {"dp3": "dp3", "inf": "judge_inf"},
        ["variants.dp3", "needs a discrim"],
    ),
    "multitask behind a discriminator": (
        "variants.dp3.variant",
        "multitask",
        ["variants.dp3", "needs a language model"],
    ),
    "pplm on an encoder": ("variants.dp3.variant", "pplm", ["variants.dp3", "reads texts, not states"]),
    "nothing left to pay with": (
        "lms.dp3.epsilon",
        3.0,
        ["discriminators.judge3.epsilon", "counts its language model"],
    ),
    "release on a reference": (
        "lms.dp3.purpose",
        "reference",
        ["discriminators.judge3", "meant for release", "is not"],
    ),
    "plain with a filter": ("variants.dp3.variant", "plain", ["variants.dp3", "has no discriminator"]),
    "examined but not fitted": ("run.embedding_audit", ["dp9"], ["run.embedding_audit", "'dp9'", "base"]),
    "a filter twice": ("variants.dp3.generate.filters.chain", ["length", "length"], ["chain names each filter once"]),
    "no length at all": ("variants.dp3.generate.filters.max_words", 1, ["max_words is 1", "min_words, 2"]),
    "attacked but not run": ("run.audit", ["dp9"], ["run.audit", "'dp9'", "run.evaluate"]),
    "released but not run": ("release.variants", ["dp9"], ["release.variants", "'dp9'", "run.evaluate"]),
    "a reference released": ("release.variants", ["inf"], ["release.variants", "'inf'", "never leaves"]),
    "released twice": ("release.variants", ["dp3", "dp3"], ["release.variants", "'dp3'", "twice"]),
    "another model in the shadow": ("run.shadow_mia", {"dp3": "inf"}, ["run.shadow_mia", "dp3: inf", "run.dp_lm"]),
    "prompts of nothing": ("run.prompt_mia", ["dp9"], ["run.prompt_mia", "'dp9'", "run.evaluate"]),
    "prompts without templates": ("run.prompt_mia", ["dp3"], ["run.prompt_mia", "utility.in_context", "null"]),
    "heads": ("models.embedded_lm.heads", 5, ["models.embedded_lm", "128", "5", "multiple"]),
}


@pytest.mark.parametrize(("path", "value", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_an_error_names_the_key_its_value_and_what_is_allowed(path: str, value: Any, words: list[str]) -> None:
    problem = refused(setting(path, value))
    assert [word for word in words if word not in problem] == []


def test_a_least_accuracy_needs_a_public_test_file() -> None:
    problem = refused(setting("release.gates.accuracy", 0.5), setting("dataset.public_test", None))
    assert "release.gates.accuracy is asked for; dataset.public_test must" in problem


def test_settings_that_contradict_each_other_are_refused() -> None:
    rank, blocks = setting("lms.dp3.train.lora_rank", 4), setting("lms.dp3.train.freeze_first", 1)
    assert "lora_rank trains adapters alone" in refused(rank, blocks)
    one, none = setting("variants.dp3.generate.best_of", 1), setting("variants.dp3.generate.filters.chain", [])
    assert "variant filter needs label in filters.chain" in refused(one, none)
    steered, half = setting("variants.dp3.variant", "pplm"), setting("variants.dp3.generate.precision", "bf16")
    assert "gradients that steer need more digits than bf16 has" in refused(steered, half)


def of_task(task: str, **dataset: Any) -> Change:
    """The demo's settings for another task: no class, no discriminator, a language model where it is of use."""

    def change(content: dict[str, Any]) -> None:
        names = {} if task == "span" else {"dp3": "dp3"}
        run = {"dp_train": list(names), "discriminator": {}, "dp_lm": names, "embedding_audit": []}
        run |= {"private_predict": {}, "select": [], "private_evolve": {}, "eda_evolve": {}}
        content["dataset"] |= {"task": task, "label": None, "labels": {}} | dataset
        content["utility"]["evaluators"] = ["next_token"]
        content["run"] |= run | {"evaluate": list(names)}
        content["variants"]["dp3"]["variant"] = "plain"
        content["variants"]["dp3"]["generate"]["best_of"] = 1
        content["variants"]["dp3"]["generate"]["filters"]["chain"] = []

    return change


FILM = {"type": "object", "properties": {"year": {"type": "integer"}, "title": {"type": "string"}}}


@pytest.mark.parametrize("text", ["*", "body"])
def test_records_of_task_json_have_a_public_schema(text: str) -> None:
    content = body()
    of_task("json", json_schema=FILM, text=text)(content)
    facts = parse(content).schema_of_data
    assert (facts.task, facts.text, facts.keys, facts.free_label) == ("json", text, ("year", "title"), False)


def test_the_label_of_task_span_is_free() -> None:
    content = body()
    of_task("span", label="genre")(content)
    facts = parse(content).schema_of_data
    assert (facts.task, facts.label, facts.label_names, facts.keys, facts.free_label) == (
        "span",
        "genre",
        (),
        None,
        True,
    )


TASKS = {
    "span without label": ("span", {}, "task span needs `label`"),
    "span with labels": ("span", {"label": "genre", "labels": {"a": "A", "b": "B"}}, "has no `labels`"),
    "span with a schema": ("span", {"label": "genre", "json_schema": FILM}, "json_schema is for task json"),
    "span of whole rows": ("span", {"label": "genre", "text": "*"}, "only for task json"),
    "json with a label": ("json", {"label": "genre", "json_schema": FILM}, "task json has no `label`"),
    "json without a schema": ("json", {}, "json_schema is for task json, which needs one"),
    "json with no schema": (
        "json",
        {"json_schema": {**FILM, "required": 3}},
        r"dataset: json_schema is no JSON schema",
    ),
    "json of lists": ("json", {"json_schema": {"type": "array"}}, "json_schema needs `type: object`"),
    "text with a label": ("text", {"label": "genre"}, "task text has no `label`"),
}


@pytest.mark.parametrize(("task", "dataset", "problem"), TASKS.values(), ids=TASKS.keys())
def test_what_does_not_fit_the_task_is_refused(task: str, dataset: dict[str, Any], problem: str) -> None:
    assert problem in refused(of_task(task, **dataset))


@pytest.mark.parametrize(
    "run", [{"dp_train": ["dp3"]}, {"dp_train": ["dp3"], "dp_lm": {"dp3": "dp3"}, "evaluate": ["dp3"]}]
)
def test_dp_lm_does_not_write_the_label_of_task_span(run: dict[str, Any]) -> None:
    problem = refused(of_task("span", label="genre"), lambda content: content["run"].update(run))
    assert "the task is span, method dp_lm is for classify and text and json" in problem


def test_a_model_and_a_discriminator_have_different_names() -> None:
    problem = refused(lambda content: content["discriminators"].update(dp3=content["discriminators"]["judge3"]))
    assert "name ['dp3'] twice" in problem


def test_a_state_judged_variant_needs_a_head_that_reads_embeddings() -> None:
    weight, reads = (
        setting("lms.dp3.train.discriminator_weight", 1.0),
        setting("lms.dp3.train.discriminator_reads", "hidden"),
    )
    drawn = setting("run.dp_lm", {"dp3": "dp3", "inf": "judge_inf"})
    assert "does not read embeddings" in refused(setting("variants.dp3.variant", "fudge_state"), drawn, weight, reads)
    assert "has no discriminator" in refused(setting("variants.dp3.variant", "fudge"), drawn)


@pytest.mark.parametrize("reads", ["encoder", "tuned"])
def test_what_reads_whole_texts_steers_no_token(reads: str) -> None:
    judge, steered = setting("discriminators.judge3.train.reads", reads), setting("variants.dp3.variant", "pplm")
    assert "reads texts, not states" in refused(judge, steered)


@pytest.mark.parametrize("name", ["real", "public_only", "Dp3", "dp-3", "dp 3", ""])
def test_a_variant_has_a_plain_name_of_its_own(name: str) -> None:
    problem = refused(lambda content: content["variants"].update({name: content["variants"]["dp3"]}))
    assert "variants" in problem
    assert repr(name) in problem


@pytest.mark.parametrize("name", ["a" * 101, "é" * 51])
@pytest.mark.parametrize("section", ["lms", "variants"])
def test_a_name_fits_into_those_of_files(name: str, section: str) -> None:
    """Before a charge: what was bought under a longer one could not be written."""
    content = body()
    content[section][name] = content[section]["dp3"]
    with pytest.raises(ParamsError, match="a name has at most 100 bytes"):
        parse(content)
    content[section][name[:-1]] = content[section].pop(name)
    parse(content)


def test_a_missing_key_is_named() -> None:
    assert "audit.size is missing" in refused(lambda content: content["audit"].pop("size"))


def test_all_problems_are_told_at_once() -> None:
    problem = refused(setting("audit.alpha", 2), setting("seed", -1))
    assert "audit.alpha" in problem
    assert "seed" in problem


@pytest.mark.parametrize("content", [None, [], "text", 3])
def test_what_is_no_mapping_is_refused(content: Any) -> None:
    with pytest.raises(ParamsError):
        parse(content)


def test_delta_of_exactly_one_over_n_is_allowed_and_flagged() -> None:
    content = body()
    assert parse(content).flags() == []
    setting("privacy.budget.delta", 1 / content["dataset"]["n_public"])(content)
    assert ["delta" in flag for flag in parse(content).flags()] == [True]


def test_a_meaningless_epsilon_and_fixed_noise_are_flagged() -> None:
    content = body()
    setting("discriminators.judge3.epsilon", 11.0)(content)
    setting("testing.noise_seed", 1)(content)
    first, second = parse(content).flags()
    assert "judge3: epsilon" in first
    assert "NOTHING" in second


def test_the_two_sizes_of_the_demo_release_the_same_on_the_same_terms() -> None:
    small, full = (loads(DEMO.with_name(name).read_text(encoding="utf-8")) for name in (FILE, "params.full.yaml"))
    references = {"inf", "judge_inf"}  # beside the exhibits, what only the full size has
    for key, listed in full.run.model_dump(exclude={"evolution_audit", "eda_audit", "facts_audit"}).items():
        assert [name for name in listed if name not in references] == list(getattr(small.run, key)), key
    assert {name: model.epsilon for name, model in small.charged.items()} == {
        name: model.epsilon for name, model in full.charged.items() if name not in references
    }
    assert (small.dataset.labels, small.release, small.privacy.ledger) == (
        full.dataset.labels, full.release, full.privacy.ledger,
    )  # fmt: skip
    assert small.dataset.n_public < full.dataset.n_public


def test_merge_keys_are_resolved() -> None:
    text = DEMO.with_name("params.full.yaml").read_text(encoding="utf-8")
    assert "<<: *" in text
    models = loads(text).lms
    assert models["inf"].train == models["dp3"].train
    assert (models["inf"].purpose, models["inf"].epsilon) == ("reference", math.inf)


def test_a_syntax_error_gives_its_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 1\naudit: {size: 3\nrun: [\n", encoding="utf-8")
    with pytest.raises(ParamsError, match=r"at line [34]"):
        load(tmp_path)


def test_a_key_given_twice_is_an_error() -> None:
    with pytest.raises(ParamsError, match="at line 2"):
        loads("seed: 1\nseed: 2\n")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_an_unreadable_or_missing_file_is_one_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "params.yaml").write_bytes(content)
    with pytest.raises(ParamsError, match=r"params\.yaml"):
        load(tmp_path)


def own_data(ledger: str | None) -> dict[str, Any]:
    content = body()
    setting("world", None)(content)
    setting("privacy.ledger", ledger)(content)
    return content


def test_the_ledger_of_own_data_is_outside_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    with pytest.raises(ParamsError, match=r"privacy\.ledger is 'ledger\.db'"):
        parse(own_data("ledger.db"))
    work = tmp_path / "work"
    for inside in (f"{work}/ledger.db", f"sqlite:///{work}/x/ledger.db", f"sqlite+pysqlite:///{work}/ledger.db"):
        with pytest.raises(ParamsError, match="inside the workspace"):
            ledger_url(parse(own_data(inside)), tmp_path / "work")
    assert ledger_url(parse(own_data(str(tmp_path / "a.db"))), tmp_path / "work") == f"sqlite:///{tmp_path}/a.db"


def test_the_environment_overrides_the_ledger_by_the_same_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "b.db"))
    params = parse(own_data(str(tmp_path / "a.db")))
    assert ledger_url(params, tmp_path / "work") == f"sqlite:///{tmp_path}/b.db"
    with pytest.raises(ParamsError, match="inside the workspace"):
        ledger_url(params, tmp_path)
    monkeypatch.setenv(LEDGER_VARIABLE, "postgresql+psycopg://user@host/books")
    assert ledger_url(params, tmp_path) == "postgresql+psycopg://user@host/books"


def test_the_invented_world_may_keep_its_ledger_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    assert ledger_url(parse(body()), tmp_path) == f"sqlite:///{tmp_path}/.palimpsest/ledger.db"


VOTE = {
    "method": "vote_select", "purpose": "release", "epsilon": 4.0,
    "vote_select": {"keep": 0.5, "votes": {"neighbours": 1, "threshold": 0.0, "selection": "rank"}, "batch": 1},
}  # fmt: skip


def voting(source: str, **changes: Any) -> Change:
    """A variant that chooses among the rows of another one."""

    def change(content: dict[str, Any]) -> None:
        content["variants"]["voted"] = VOTE | changes
        content["run"]["vote_select"] = {"voted": source}
        content["run"]["evaluate"] = [*content["run"]["evaluate"], "voted"]

    return change


def endpoint(content: dict[str, Any]) -> None:
    """The demo's evolved variant with an author behind an endpoint."""
    content["authors"]["far"] = {
        "kind": "endpoint", "url": "http://localhost:1/v1", "model": "m", "key": None, "concurrency": 1,
        "requests_a_minute": None, "timeout": 1.0, "retries": 0, "most_tokens": None,
        "price": {"read": 0.0, "written": 0.0, "most": None}, "temperature": 1.0, "top_p": 1.0, "tries": 1,
        "length": {"typical": 9, "least": 3, "spread": 0.0, "tokens_a_word": 2.0, "cap": 64},
        "prompts": Prompts().model_dump(),
    }  # fmt: skip
    content["run"]["private_evolve"] = {"evolve3": "far"}


@pytest.mark.parametrize("source", ["dp3", "predict3", "select3", "evolve3"])
def test_any_other_method_may_be_chosen_from(source: str) -> None:
    content = body()
    voting(source)(content)
    assert parse(content).run.vote_select == {"voted": source}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([voting("dp3", epsilon=3.0)], ["voted.epsilon is 3", "counts its source 'dp3'", "takes 3"]),
        ([voting("inf")], ["voted is meant for release, but its source 'inf' is not"]),
        ([voting("nobody")], ["run.vote_select names 'nobody'"]),
        ([voting("voted")], ["run.vote_select names 'voted'"]),
        ([setting("run.private_evolve", {"evolve3": "nobody"})], ["run.private_evolve names 'nobody'", "authors"]),
        ([setting("run.select", ["dp3"])], ["run.select names 'dp3'", "method select"]),
    ],
)
def test_what_is_chosen_from_and_who_writes_must_be_there(changes: list[Change], words: list[str]) -> None:
    problem = refused(*changes)
    assert [word for word in words if word not in problem] == []


def test_what_exact_votes_chose_is_sent_to_nobody() -> None:
    content = body()
    endpoint(content)
    assert parse(content).authors["far"].kind == "endpoint"
    exact = setting("variants.evolve3.purpose", "reference"), setting("variants.evolve3.epsilon", math.inf)
    told = "would send what rows chose to the endpoint 'far'"
    assert told in refused(endpoint, *exact)
    assert told in refused(endpoint, setting("testing.noise_seed", 1))


def test_prompts_are_attacked_where_a_judge_here_knows_every_label() -> None:
    asked = setting("run.prompt_mia", ["dp3"]), setting("utility.in_context", {})
    content = body()
    for change in asked:
        change(content)
    assert parse(content).run.prompt_mia == ("dp3",)
    judge = {"kind": "endpoint", "url": "http://localhost:1/v1", "model": "m", "may_read_private_rows": True}
    assert "got an endpoint" in refused(*asked, setting("models.judge", judge | {"listed": 20, "context": 2048}))
    assert "no public list of labels" in refused(of_task("text"), *asked)


def test_an_author_that_answers_in_words_writes_no_json() -> None:
    task = of_task("json", json_schema=FILM, text="*")
    rows = setting("run.private_evolve", {"evolve3": "far"}), setting("run.evaluate", ["dp3", "evolve3"])
    assert "task json needs base or corpus" in refused(endpoint, task, *rows)


def test_public_texts_are_selected_for_labels_alone() -> None:
    rows = setting("run.select", ["select3"]), setting("run.evaluate", ["dp3", "select3"])
    assert "the task is text, method select is for classify" in refused(of_task("text"), *rows)


def test_keywords_are_of_public_labels() -> None:
    prompts = "authors.far.prompts"
    changes = setting(f"{prompts}.keywords", {"stranger": ["a"]}), setting(f"{prompts}.random", "{keyword}")
    assert "keywords names ['stranger']" in refused(endpoint, *changes)


def test_the_votes_leave_no_filter_that_needs_a_model() -> None:
    chain = setting("variants.evolve3.evolve.filters.chain", ["perplexity"])
    assert "this method has length, personal_data, duplicates" in refused(chain)
    shares = setting("variants.evolve3.evolve.class_means.share", 0.99)
    assert "leave nothing of the budget" in refused(shares)

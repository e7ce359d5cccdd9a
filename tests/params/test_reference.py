from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from palimpsest.audit.incontext_settings import InContext
from palimpsest.methods.baselines.custext.settings import CusTextSettings
from palimpsest.methods.baselines.fewshot.settings import FewShotPrompt, FewShotSettings
from palimpsest.methods.baselines.sentdp.settings import SentDpSettings
from palimpsest.methods.embed.settings import GaussianHistogram, LimitedDomain
from palimpsest.methods.evolve.authors import Base, Corpus
from palimpsest.methods.predict.settings import Means, SparseVector
from palimpsest.methods.select.settings import SelectSettings
from palimpsest.methods.shared.settings import Votes
from palimpsest.methods.vote_select.settings import VoteSelectSettings
from palimpsest.models.chat.settings import Endpoint, Length, LocalChat, Price, Prompts
from palimpsest.params.reference import render

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_schema_says() -> None:
    """Write it again with `render()` after a change of the schema."""
    assert (ROOT / "docs" / "params.md").read_text(encoding="utf-8") == render()


def keys(content: Any, prefix: str = "") -> set[str]:
    if not isinstance(content, dict):
        return set()
    names = {f"{prefix}{name}" for name in content}
    return names.union(*(keys(value, f"{prefix}{name}.") for name, value in content.items()))


def author_keys() -> dict[str, Any]:
    """What any author may be told."""
    found = {key: None for kind in (Corpus, Base, LocalChat, Endpoint) for key in kind.model_fields}
    sections = {"prompts": Prompts, "length": Length, "price": Price}
    return found | {name: dict.fromkeys(section.model_fields) for name, section in sections.items()}


def test_every_key_of_the_demo_has_its_row() -> None:
    content = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    written = content["variants"]["predict3"]
    written["predict"]["sparse_vector"] = dict.fromkeys(SparseVector.model_fields)
    written["predict"]["means"] = dict.fromkeys(Means.model_fields)
    prompt = dict.fromkeys(FewShotPrompt.model_fields)
    shots = dict.fromkeys(FewShotSettings.model_fields) | {"prompt": prompt, "filters": written["predict"]["filters"]}
    votes = dict.fromkeys(Votes.model_fields)
    others = {"select": dict.fromkeys(SelectSettings.model_fields), "evolve": content["variants"]["evolve3"]["evolve"]}
    selections = {key: None for kind in (GaussianHistogram, LimitedDomain) for key in kind.model_fields}
    others["embed"] = content["variants"]["embed3"]["embed"] | {"selection": selections}
    others |= {"sentdp": dict.fromkeys(SentDpSettings.model_fields)}
    others |= {"custext": dict.fromkeys(CusTextSettings.model_fields)}
    others["vote_select"] = dict.fromkeys(VoteSelectSettings.model_fields) | {"votes": votes}
    content["variants"] = {"<name>": content["variants"]["dp3"] | written | others | {"fewshot": shots}}
    content["authors"] = {"<name>": author_keys()}
    content["utility"]["in_context"] = dict.fromkeys(InContext.model_fields)
    content["decoders"] = {"<name>": content["decoders"]["small"]}
    content["taught"] = {"<name>": content["taught"]["similar"]}
    content["lms"] = {"<name>": content["lms"]["dp3"]}
    content["discriminators"] = {"<name>": content["discriminators"]["judge3"]}
    content["run"] |= {"dp_lm": {}, "discriminator": {}, "private_predict": {}, "private_evolve": {}, "eda_evolve": {}}
    content["run"]["shadow_mia"] = {}
    content["dataset"]["labels"] = {}
    described = {line.split("`")[1] for line in render().splitlines() if line.startswith("| `")}
    named = {f"{section}.<name>" for section in ("variants", "taught", "authors", "decoders", "lms", "discriminators")}
    assert keys(content) - named == described


def test_every_key_is_described() -> None:
    empty = [line for line in render().splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert empty == []


def test_ranges_are_shown() -> None:
    page = render()
    assert "| `privacy.budget.delta` | number or null | > 0, < 1 | `null` |" in page
    assert "| `dataset.task` | one of `classify`, `span`, `text`, `json` |" in page
    assert "| `dataset.json_schema` | text → anything or null |" in page

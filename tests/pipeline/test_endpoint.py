"""Private evolution through a real endpoint, with a recorder in between: what leaves for the author is not private."""

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

import stages.fit
from bench import postgres
from palimpsest.files import read_json
from palimpsest.models.lm import save_lm, train
from palimpsest.models.settings import PromptWarmUp
from palimpsest.models.tokens import specials, train_tokenizer
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.witness import VARIABLE as WITNESSES
from palimpsest.records.write import read_rounds, read_synthetic
from tests.models.chat import tiny
from tests.models.chat.recorder import recording
from tests.models.chat.served import transformers_serve
from tests.models.chat.server import Running
from tests.pipeline.place import MARKER, Place
from tools.world.grammar import LABELS

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

EVOLVED = "evolve0_5"
KEY_VARIABLE, KEY, PASSWORD = "AUTHOR_KEY", "sk-planted-4f1d7c", "planted-9be2a8"
SENTENCES = [
    f"The {thing} {verb} {when}."
    for thing in ("lamp", "kettle", "radio", "heater")
    for verb in ("hums", "leaks", "stopped")
    for when in ("again", "at night", "since May")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with a chat template that learnt to answer with one of a few sentences, whatever it is asked."""
    tokenizer = train_tokenizer(SENTENCES, 320, tiny.CONTEXT)
    tokenizer.chat_template = tiny.TEMPLATE
    ids, draw = specials(tokenizer), np.random.default_rng(0)
    opening = tokenizer.encode("assistant\n", add_special_tokens=False)
    rows = [
        [*draw.integers(3, len(tokenizer), draw.integers(40, 120)).tolist(), ids.sep, *opening, *own, ids.eos]
        for own in (tokenizer.encode(sentence, add_special_tokens=False) for sentence in SENTENCES * 8)
    ]
    config = LlamaConfig(
        num_hidden_layers=1, hidden_size=32, intermediate_size=64, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=len(tokenizer), max_position_embeddings=tiny.CONTEXT, bos_token_id=ids.bos, eos_token_id=ids.eos,
        pad_token_id=ids.pad,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    told = PromptWarmUp(epochs=8, batch=32, learning_rate=0.02, max_tokens=64)
    train(model.train(), rows, told, 0, private=False)
    model.generation_config = GenerationConfig(do_sample=True, eos_token_id=ids.eos, pad_token_id=ids.pad)
    made = tmp_path_factory.mktemp("served") / "model"
    save_lm(model, tokenizer, made)
    return made


@pytest.fixture(scope="module")
def recorder(folder: Path) -> Iterator[Running]:
    with transformers_serve(folder) as served, recording(served) as running:
        yield running


@pytest.fixture(scope="module")
def books() -> Iterator[str]:
    """The URL of an empty database, with a password in it."""
    with postgres.server("fsync=off") as url:
        yield url.replace("palimpsest@", f"palimpsest:{PASSWORD}@")


@pytest.fixture(scope="module")
def evolved(ran: Place, copy: Callable[[Place], Place], recorder: Running, folder: Path, books: str) -> Iterator[Place]:
    """The workspace after one round with the endpoint as author, run by DVC with secrets in its environment."""
    place = copy(ran)
    endpoint = {
        "kind": "endpoint", "url": recorder.url, "model": str(folder), "key": KEY_VARIABLE, "concurrency": 4,
        "requests_a_minute": None, "timeout": 60.0, "retries": 2, "most_tokens": 200_000,
        "price": {"read": 1.0, "written": 2.0, "most": 1.0}, "temperature": 1.0, "top_p": 1.0, "tries": 3,
        "length": {"typical": 4, "least": 3, "spread": 1.0, "tokens_a_word": 8.0, "cap": 24},
    }  # fmt: skip
    votes = {"neighbours": 3, "threshold": 0.0, "selection": "rank"}
    settings = {"rows": 10, "rounds": 2, "expand": 2, "batch": 64, "votes": votes, "class_means": None}
    settings["label_counts"] = "prior"  # so that another look asks for the same texts
    place.edit("authors", endpoint=endpoint)
    place.edit("variants", **{EVOLVED: {"method": "evolve", "epsilon": 0.5, "from": "endpoint", **settings}})
    Ledger.create(books).take_in(place.ledger.export())
    with place.entered() as patch:
        patch.setenv(LEDGER_VARIABLE, books)
        patch.setenv(KEY_VARIABLE, KEY)
        patch.setenv(WITNESSES, str(place.home / "witnesses"))
        secrets = {name: os.environ[name] for name in (LEDGER_VARIABLE, KEY_VARIABLE, WITNESSES)}
        code, output = place.run("dvc", "repro", f"private_evolve@{EVOLVED}", **secrets)
        assert code == 0, output
        yield place


def words_sent(recorder: Running) -> str:
    """All that the author was sent, as one text."""
    return "\n".join(part["content"] for one in recorder.seen for part in json.loads(one.body).get("messages", []))


def test_rows_are_written_by_the_model_behind_the_endpoint(evolved: Place, recorder: Running):
    rows = read_synthetic(f"data/synthetic/{EVOLVED}", "body", "team")
    assert rows
    counts = read_json(f"reports/metrics/{EVOLVED}/generation.json")
    assert counts["requests"] == len([one for one in recorder.seen if one.path.endswith("/chat/completions")])
    assert counts["tokens"] > 0


def test_no_private_row_passes(evolved: Place, recorder: Running):
    sent, public = words_sent(recorder), evolved.public.read_text()
    assert MARKER not in sent
    assert any(label in sent for label in LABELS)  # which are public, and do pass
    private = [text for text in evolved.private_rows if text not in public]
    assert private
    assert [text for text in private if text in sent] == []
    runs = {run for text in private for run in spans(text) if run not in public}
    assert runs & spans(sent) == set()


def test_secrets_of_the_environment_are_used_and_written_nowhere(evolved: Place, recorder: Running, books: str):
    assert {one.headers.get("authorization") for one in recorder.seen} == {f"Bearer {KEY}"}
    assert [charge.state for charge in Ledger.open(books).charges("tickets") if charge.variant == EVOLVED][
        -1
    ] == "committed"
    assert EVOLVED not in {charge.variant for charge in evolved.charges}  # of the file that it was copied from
    written = {path: path.read_bytes() for path in evolved.home.rglob("*") if path.is_file()}
    names = {path.relative_to(evolved.home).as_posix() for path in written}
    receipt = f"workspace/reports/receipts/{EVOLVED}.json"
    assert {"output.log", "workspace/dvc.lock", "workspace/params.resolved.yaml", receipt} <= names
    assert any(name.startswith("witnesses") for name in names)
    assert KEY_VARIABLE.encode() in written[evolved.workspace / "params.resolved.yaml"]
    planted = [form for one in (KEY.encode(), PASSWORD.encode()) for form in (one, base64.b64encode(one))]
    assert [path for path, content in written.items() if any(form in content for form in planted)] == []


def spans(text: str, length: int = 5) -> set[str]:
    """All runs of so many words."""
    words = text.split()
    return {" ".join(words[start : start + length]) for start in range(len(words) - length + 1)}


def test_variations_ask_about_texts_that_the_author_wrote(evolved: Place, recorder: Running):
    candidates = [one.text for part in read_rounds(f"data/evolved/{EVOLVED}.parquet") for one in part]
    assert any(text in words_sent(recorder) for text in candidates)


def test_what_was_answered_is_never_asked_again(evolved: Place, recorder: Running, books: str):
    """Another look at the same data, at another epsilon: the first population comes out of the file."""
    before = len(recorder.seen)
    assert sum("Write one text" in one.body.decode() for one in recorder.seen) >= 10
    charges = len(Ledger.open(books).charges("tickets"))
    evolved.edit("variants", EVOLVED, epsilon=0.4)
    code, output = evolved.stage_again(stages.fit, EVOLVED, "endpoint")
    assert code == 0, output
    assert len(Ledger.open(books).charges("tickets")) > charges
    assert [one for one in recorder.seen[before:] if "Write one text" in one.body.decode()] == []

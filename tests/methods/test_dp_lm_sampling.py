"""Rows come out exact in number, the same however they are batched or interrupted, judged and filtered as promised."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from palimpsest.errors import ModelError
from palimpsest.files import read_json, write_json
from palimpsest.methods.dp_lm.decoding import PlainWalk, uniforms, write
from palimpsest.methods.dp_lm.guidance import FudgeWalk, PplmWalk, StateWalk
from palimpsest.methods.dp_lm.likelihood import encoder_probabilities, judge_of, state_probabilities
from palimpsest.methods.dp_lm.model import ENCODER, ConditionalLm, DpLmArtifact, HeadShape, new_head
from palimpsest.methods.dp_lm.sampling import Sampler, walk_of
from palimpsest.methods.dp_lm.serialise import UNLABELLED, serialiser
from palimpsest.methods.dp_lm.settings import VARIANTS
from palimpsest.methods.shared.postprocess import Candidate, Duplicates, FilterChain
from palimpsest.records.conformity import conforms
from palimpsest.records.structured import members_of
from tests.methods.blind_models import LABELS, blind_model, head_input, read_whole

TEXTS = ["The lamp is great.", "The radio is awful and nasty.", "", "fine", "The kettle is poor and poor and poor."]
COUNTS = {"praise": 5, "a complaint": 8}
LETTERS = 40  # length of the vectors of `encode`


@pytest.fixture(scope="module")
def fitted(base) -> DpLmArtifact:
    """A model that writes both classes, with a head that tells them apart."""
    model, rows = blind_model(base, "both")
    return DpLmArtifact(model, rows.tokenizer, dict.fromkeys(LABELS, 0.5), 24, "text")


@pytest.fixture(scope="module")
def encoded(fitted) -> DpLmArtifact:
    """The same with a head that reads `encode`."""
    head = new_head(HeadShape(ENCODER, LETTERS, 4, 2), 3)
    return replace(fitted, model=ConditionalLm(fitted.model.lm, head, 1.0).eval())


def encode(texts: list[str]) -> np.ndarray:
    """Unit vectors (texts, LETTERS) that are functions of each text alone."""
    counts = np.array([[1.0 + sum(ord(letter) % LETTERS == place for letter in text) for place in range(LETTERS)]
                       for text in texts])  # fmt: skip
    return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


@dataclass
class Noting:
    """Keeps what a rule keeps, and notes what it saw."""

    rule: Callable[[int, Candidate], bool] = lambda number, candidate: True
    seen: list[Candidate] = field(default_factory=list)
    name: str = "noting"

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """What the rule says of each, given how many came before."""
        first = len(self.seen)
        self.seen.extend(candidates)
        return [self.rule(first + index, candidate) for index, candidate in enumerate(candidates)]


def _rows(artifact, settings, variant="plain", chain=None, counts=COUNTS, **more) -> list[tuple[str, str | None]]:
    sampler = Sampler(settings, variant, 7, chain or FilterChain([]), **more)
    return [(record.text, record.label) for record in sampler.sample(artifact, counts)]


# Judges.


def test_a_judge_reads_the_mean_of_the_text_alone(fitted) -> None:
    """Behind one and the same token in the label's place, and whatever is judged beside it."""
    rows = serialiser(fitted.tokenizer, LABELS, 24, "text")
    found = state_probabilities(fitted.model, rows, TEXTS)
    assert found.shape == (5, 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)
    prompt = [rows.ids.bos, int(rows.ordinary[0]), rows.ids.sep]
    for text, probabilities in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(state_probabilities(fitted.model, rows, [text])[0], probabilities, atol=1e-5)
        if text:
            embedded, hidden = read_whole(fitted.model, prompt, [rows.tokenizer.encode(text)])
            mean = head_input(fitted.model, embedded[0], hidden[0])
            wanted = fitted.model.head(mean).softmax(dim=-1).detach()
            np.testing.assert_allclose(probabilities, wanted, atol=1e-5)
    assert found[0, 0] > 0.9 > 0.1 > found[1, 0]


def test_a_judge_is_told_no_label(fitted) -> None:
    """Which names the labels have, and in which order, changes nothing; nor is anything random."""
    wanted = state_probabilities(fitted.model, serialiser(fitted.tokenizer, LABELS, 24, "text"), TEXTS)
    for names in (LABELS, LABELS[::-1], ("some", "other", "names"), ()):
        rows = serialiser(fitted.tokenizer, names, 24, "text")
        np.testing.assert_array_equal(state_probabilities(fitted.model, rows, TEXTS), wanted)


def test_an_encoders_judge_reads_each_text_alone(encoded) -> None:
    rows = serialiser(encoded.tokenizer, LABELS, 24, "text")
    found = judge_of(encoded.model, rows, encode)(TEXTS)
    np.testing.assert_array_equal(found, encoder_probabilities(encoded.model.head, encode, TEXTS))
    for text, probabilities in zip(TEXTS, found, strict=True):
        features = torch.from_numpy(encode([text])) * math.sqrt(LETTERS)
        wanted = encoded.model.head(features).softmax(dim=-1).detach()[0]
        np.testing.assert_allclose(probabilities, wanted, atol=1e-5)


def test_an_encoders_head_needs_an_encoder(encoded, fitted, make_generate) -> None:
    rows = serialiser(encoded.tokenizer, LABELS, 24, "text")
    with pytest.raises(ModelError, match="reads a sentence encoder"):
        judge_of(encoded.model, rows, None)
    with pytest.raises(ModelError, match="reads a sentence encoder"):
        _rows(encoded, make_generate(best_of=2))
    np.testing.assert_array_equal(
        judge_of(fitted.model, rows, None)(TEXTS), state_probabilities(fitted.model, rows, TEXTS)
    )


# Counts.


def test_every_label_has_its_count_in_order(fitted, make_generate) -> None:
    found = _rows(fitted, make_generate(), counts={"a complaint": 4, "praise": 9})
    assert [label for _, label in found] == ["a complaint"] * 4 + ["praise"] * 9
    assert len({text for text, _ in found}) > 4
    assert [label for _, label in _rows(fitted, make_generate(), counts={"praise": 0, "a complaint": 2})] == [
        "a complaint"
    ] * 2


def test_a_task_without_labels_has_rows_without(fitted, make_generate) -> None:
    unlabelled = replace(fitted, shares={UNLABELLED: 1.0})
    assert [label for _, label in _rows(unlabelled, make_generate(), counts={UNLABELLED: 7})] == [None] * 7


def test_what_the_filters_take_is_drawn_again(fitted, make_generate) -> None:
    """The first of each label's own texts that pass, in the order of their numbers."""
    whole = _rows(fitted, make_generate(), counts=dict.fromkeys(COUNTS, 64))
    passing = [row for row in whole if "lamp" not in row[0]]
    lost = Noting(lambda number, candidate: "lamp" not in candidate.record.text)
    chain = FilterChain([lost])
    found = _rows(fitted, make_generate(), chain=chain)
    assert found == [row for label in COUNTS for row in [each for each in passing if each[1] == label][: COUNTS[label]]]
    assert chain.removed["noting"] > 0
    assert chain.seen == len(lost.seen) > sum(COUNTS.values())


def test_the_last_draw_that_is_allowed_is_made(fitted, make_generate) -> None:
    """Filters may take all but the last of `draws` draws per row."""
    last = Noting(lambda number, candidate: number == 7)
    found = _rows(fitted, make_generate(draws=8), chain=FilterChain([last]), counts={"praise": 1})
    assert found == [(last.seen[7].record.text, "praise")]
    assert len(last.seen) == 8


def test_filters_that_leave_too_little_are_an_error_that_names_them(fitted, make_generate) -> None:
    chain = FilterChain(
        [
            Noting(lambda number, candidate: number % 4 != 0, name="fourths"),
            Noting(lambda number, candidate: number < 3, name="late"),
        ]
    )
    with pytest.raises(ModelError) as error:
        _rows(fitted, make_generate(draws=5), chain=chain, counts={"a complaint": 4})
    assert chain.seen == 20
    assert "too few rows of label 'a complaint' after 5 draws for each" in str(error.value)
    assert "most are removed by 'late'" in str(error.value)
    assert "3" not in str(error.value), "how many were left may be a reference's"


def test_a_text_that_may_not_fit_the_model_is_an_error(fitted, make_generate) -> None:
    with pytest.raises(ModelError, match="the model has 48"):
        _rows(fitted, make_generate(max_tokens=44))


# The same rows.


@pytest.mark.parametrize("variant", ["plain", "fudge", "fudge_state", "multitask"])
def test_every_text_is_a_record_of_the_schema(fitted, make_generate, variant: str) -> None:
    """However its tokens are chosen, and whatever a text beside it has done."""
    schema = {"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]}
    rows = _rows(fitted, make_generate(temperature=2.0, max_tokens=24), variant, json_schema=schema)
    assert len(rows) == 13
    assert all(map(conforms(schema), (members_of(text) for text, _ in rows)))
    assert len({text for text, _ in rows}) > 5


@pytest.mark.parametrize(("variant", "best_of"), [("plain", 1), ("filter", 3), ("fudge", 1), ("multitask", 2)])
def test_the_batch_changes_no_row(fitted, make_generate, variant: str, best_of: int) -> None:
    """Nor does it with filters that remember what they kept."""
    found = []
    for batch in (1, 7, 40):
        how = make_generate(batch=batch, best_of=best_of, max_tokens=12, step_size=0.2, top_p=1.0)
        found.append(_rows(fitted, how, variant, FilterChain([Duplicates(1.0, 3)])))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == len(found[0])


@pytest.fixture(scope="module")
def halved(fitted, tmp_path_factory) -> DpLmArtifact:
    """The same, its language model's weights in half precision."""
    folder = tmp_path_factory.mktemp("halved") / "model"
    fitted.save(folder)
    return DpLmArtifact.load(folder, torch.bfloat16)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["plain", "filter", "fudge", "fudge_state"])
def test_half_the_digits_write_by_nearly_the_same_law(fitted, halved, make_generate, variant: str) -> None:
    """What is added up, the logits and what the head reads, keeps its digits."""
    first = torch.tensor([[0, 5, 9]])
    ways = [artifact.model.logits(artifact.model.hidden(first)).softmax(dim=-1) for artifact in (fitted, halved)]
    assert halved.model.embedding.dtype == torch.bfloat16
    assert {way.dtype for way in ways} == {torch.float32}
    assert 0 < float((ways[0] - ways[1]).abs().sum(dim=-1).max()) < 0.1
    settings = make_generate(best_of=1 if variant == "plain" else 2, precision="bf16")
    rows = _rows(halved, settings, variant)
    assert [label for _, label in rows] == [label for label, count in COUNTS.items() for _ in range(count)]


def test_more_rows_begin_with_the_fewer(fitted, make_generate) -> None:
    """A row has a stream of its own, so its neighbours do not shape it; another seed does."""
    few, many = (_rows(fitted, make_generate(), counts={"praise": count}) for count in (4, 9))
    assert few == many[:4]
    other = Sampler(make_generate(), "plain", 8, FilterChain([])).sample(fitted, {"praise": 9})
    assert [record.text for record in other] != [text for text, _ in many]


@pytest.mark.parametrize("best_of", [2, 3])
def test_the_best_of_a_few_is_the_most_probable_of_its_own_streams(fitted, make_generate, best_of: int) -> None:
    how = make_generate(best_of=best_of, batch=4)
    noting = Noting()
    found = _rows(fitted, how, chain=FilterChain([noting]))
    rows = serialiser(fitted.tokenizer, LABELS, how.max_tokens, "text")
    wanted, probabilities, places = [], [], []
    for label, count in COUNTS.items():
        place = LABELS.index(label)
        for number in range(count):
            texts = [_one(fitted, rows, label, number * best_of + which, how) for which in range(best_of)]
            own = state_probabilities(fitted.model, rows, texts)[:, place]
            places.append(int(own.argmax()))
            wanted.append((texts[places[-1]], label))
            probabilities.append(own.max())
    assert found == wanted
    assert len(set(places)) == best_of
    np.testing.assert_allclose([each.probability for each in noting.seen], probabilities, atol=1e-5)


def _one(artifact, rows, label: str, number: int, how) -> str:
    """The text of one stream, drawn by itself."""
    coins = uniforms(7, LABELS.index(label), number, how.max_tokens)[None]
    walk = walk_of("plain", artifact.model, [rows.prompt(label)], [LABELS.index(label)], rows.ids, how)
    return rows.tokenizer.batch_decode(write(walk, rows.ids, how, coins))[0].strip()


def test_probabilities_are_nan_where_nobody_judges(fitted, make_generate) -> None:
    silent, judged, again = Noting(), Noting(), Noting()
    _rows(fitted, make_generate(), chain=FilterChain([silent]))
    assert len(silent.seen) == 13
    assert all(math.isnan(each.probability) for each in silent.seen)
    label = make_generate(filters={"chain": ("label",)})  # it needs a number, though best_of is 1
    found = _rows(fitted, label, chain=FilterChain([judged]))
    rows = serialiser(fitted.tokenizer, LABELS, 24, "text")
    for (text, name), candidate in zip(found, judged.seen, strict=True):
        wanted = state_probabilities(fitted.model, rows, [text])[0, LABELS.index(name or "")]
        assert candidate.probability == pytest.approx(wanted, abs=1e-5)
    assert found == _rows(fitted, make_generate(), chain=FilterChain([again]))


@pytest.mark.parametrize(
    ("variant", "kind"),
    [
        ("plain", PlainWalk),
        ("filter", PlainWalk),
        ("pplm", PplmWalk),
        ("multitask", PplmWalk),
        ("fudge", FudgeWalk),
        ("fudge_state", StateWalk),
    ],
)
def test_each_variant_walks_its_own_way(fitted, make_generate, variant: str, kind: type) -> None:
    rows = serialiser(fitted.tokenizer, LABELS, 24, "text")
    walk = walk_of(variant, fitted.model, [rows.prompt("praise")], [0], rows.ids, make_generate())
    assert type(walk) is kind
    assert len(VARIANTS) == 6


# Shards.


def test_finished_shards_are_read_and_the_others_drawn_again(fitted, make_generate, tmp_path: Path) -> None:
    how = make_generate(best_of=2, batch=6)
    whole = _rows(fitted, how, chain=_half())
    assert _rows(fitted, how, chain=_half(), shards=tmp_path) == whole
    files = sorted(tmp_path.iterdir())
    assert len(files) > 5
    for path in files[2:]:
        path.unlink()
    times = [path.stat().st_mtime_ns for path in files[:2]]
    chain = _half()
    assert _rows(fitted, how, chain=chain, shards=tmp_path) == whole
    assert [path.stat().st_mtime_ns for path in files[:2]] == times
    assert sorted(tmp_path.iterdir()) == files
    assert chain.seen == sum(len(read_json(path)) for path in files)


def test_what_a_shard_holds_is_not_drawn_again(fitted, make_generate, tmp_path: Path) -> None:
    """Its probabilities are read too; none is nan."""
    first, second = Noting(), Noting()
    how = make_generate(batch=4)
    whole = _rows(fitted, how, chain=FilterChain([first]), shards=tmp_path)
    write_json(tmp_path / "1.json", [("Written by hand.", 0.25), *read_json(tmp_path / "1.json")[1:]])
    found = _rows(fitted, how, chain=FilterChain([second]), shards=tmp_path)
    assert found == [*whole[:4], ("Written by hand.", "praise"), *whole[5:]]
    assert second.seen[4].probability == 0.25
    assert all(math.isnan(each.probability) for each in [*first.seen, *second.seen[:4], *second.seen[5:]])


def test_a_stopped_run_goes_on_behind_its_last_shard(encoded, make_generate, tmp_path: Path) -> None:
    """Stopped while it judges: the shard at hand is lost, and nothing half written is left."""
    how = make_generate(best_of=2, batch=6)
    calls: list[int] = []

    def stopping(texts: list[str]) -> np.ndarray:
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(texts)

    with pytest.raises(KeyboardInterrupt):
        _rows(encoded, how, encode=stopping, shards=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.json", "1.json"]
    calls = [0] * 3
    assert _rows(encoded, how, encode=stopping, shards=tmp_path) == _rows(encoded, how, encode=encode)
    assert calls[3:] == [6, 6, 2]  # thirteen rows, three a shard, two texts for each row; two shards were there


def _half() -> FilterChain:
    """A chain that takes every second candidate, so that rows are drawn in several rounds."""
    return FilterChain([Noting(lambda number, candidate: number % 2 == 0)])

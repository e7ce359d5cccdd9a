"""Records that are drawn token by token by a schema: whatever is drawn among the allowed tokens parses and conforms."""

import json
import pickle
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from palimpsest.errors import ModelError
from palimpsest.models.grammar import Grammar
from palimpsest.models.tokens import specials
from palimpsest.records.conformity import conforms, record_problem
from palimpsest.records.structured import members_of
from tests.prediction.tiny import tokenizer

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
FILM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "year": {"type": "integer", "minimum": 1880, "maximum": 2030},
        "cast": {"type": "array", "items": {"type": "string"}},
        "kind": {"enum": ["drama", "Komödie \"neu\""]},
        "told": {"type": "object", "properties": {"by": {"type": ["string", "null"]}}, "required": ["by"]},
    },
    "required": ["title", "year", "cast", "kind", "told"],
}  # fmt: skip


@cache
def pieces() -> PreTrainedTokenizerFast:
    """A tokenizer in the manner of SentencePiece: a sign for a blank, and a token for each byte without a piece."""
    words = ["▁", "{", "}", "[", "]", '"', ":", ",", "▁lamp", '{"', '":', "▁[", "▁{", '"}', '",', *"abcdeilmrtuvwy0129"]
    known = ["<bos>", "<eos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    made = Tokenizer(BPE({word: place for place, word in enumerate(known)}, [], unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")


WORD = {"type": "string"}
TOKENIZERS = {"bytes": tokenizer, "pieces": pieces}


def drawn(own: PreTrainedTokenizerBase, schema: dict[str, Any], most: int, seed: int, beginning: str = "") -> str:
    """Draw a record uniformly, at most so many tokens behind its beginning; the width is more than the vocabulary."""
    grammar, coins = Grammar(own, schema, len(own) + 3), np.random.default_rng(seed)
    tokens = own.encode(beginning, add_special_tokens=False)
    record = grammar.begin(most, tokens)
    assert record is not None
    while len(tokens) < most:
        (allowed,) = grammar.allowed([record])[0].numpy().nonzero()
        token = int(coins.choice(allowed))
        if token == specials(own).eos:
            assert list(allowed) == [token]
            break
        tokens.append(token)
        record.take(token)
    return own.decode(tokens)


def values() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of one value."""
    bounds = st.tuples(st.integers(-30, 30), st.integers(0, 50))
    sizes = st.tuples(st.integers(0, 2), st.integers(0, 3))
    return st.one_of(
        st.just({"type": "string"}), st.just({"type": "boolean"}), st.just({"type": ["integer", "null"]}),
        st.just({"type": "string", "pattern": "^[a-z]{2}[0-9]$"}), st.just({"type": "string", "format": "date"}),
        bounds.map(lambda two: {"type": "integer", "minimum": two[0], "maximum": sum(two)}),
        bounds.map(lambda two: {"type": "number", "minimum": two[0], "exclusiveMaximum": sum(two) + 1}),
        sizes.map(lambda two: {"type": "string", "minLength": two[0], "maxLength": sum(two)}),
        sizes.map(lambda two: {"type": "array", "items": WORD, "minItems": two[0], "maxItems": sum(two)}),
        st.lists(st.text(max_size=4) | st.integers(-999, 999), min_size=1, max_size=3).map(lambda own: {"enum": own}),
    )  # fmt: skip


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of an object with one to three members, of which some are required."""
    members = st.dictionaries(st.text(min_size=1, max_size=5), inner, min_size=1, max_size=3)
    required = members.flatmap(lambda own: st.tuples(st.just(own), st.sets(st.sampled_from(sorted(own)))))
    return required.map(lambda two: {"type": "object", "properties": two[0], "required": sorted(two[1])})


@settings(max_examples=60, deadline=None)
@given(schema=objects(values() | objects(values())), seed=st.integers(0, 99), name=st.sampled_from(list(TOKENIZERS)))
def test_each_record_parses_and_conforms(schema: dict[str, Any], seed: int, name: str) -> None:
    """Within a public number of tokens, whatever was drawn before."""
    assert record_problem(schema) is None
    own = TOKENIZERS[name]()
    most = Grammar(own, schema, len(own)).least + 40
    text = drawn(own, schema, most, seed)
    members = members_of(text)
    assert members is not None, text
    assert conforms(schema)(members), text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_records_are_spelt_as_they_are_read(name: str) -> None:
    """In the order and with the spaces of the texts that a model learned, and without a raw control character."""
    texts = [drawn(TOKENIZERS[name](), FILM, 400, seed) for seed in range(8)]
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert not any(ord(sign) < 32 for sign in text)
        assert list(json.loads(text)) == list(FILM["properties"])
        assert _STRING.sub("", text) == _STRING.sub("", json.dumps(json.loads(text)))


def test_a_schema_that_asks_for_more_than_a_grammar_follows_still_has_all_its_records() -> None:
    """Each value that conforms can be written; of others, some can, and a filter takes them out."""
    schema = {"type": "object", "required": ["a"], "properties": {"a": {
        "type": "array", "items": {"oneOf": [{"const": 1}, {"enum": [1, 2, 3]}]}, "uniqueItems": True,
    }}}  # fmt: skip
    own, grammar = tokenizer(), Grammar(tokenizer(), schema, len(tokenizer()))
    for value in ([], [2], [3, 2], [2, 2], [1]):
        text = json.dumps({"a": value})
        tokens = own.encode(text, add_special_tokens=False)
        assert grammar.begin(99, tokens) is not None, text
    assert [conforms(schema)({"a": value}) for value in ([], [2], [3, 2], [2, 2], [1])] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert grammar.begin(99, own.encode('{"a": [4', add_special_tokens=False)) is None


def test_a_record_goes_on_behind_its_beginning() -> None:
    text = drawn(tokenizer(), FILM, 200, 1, '{"title": "the lamp", "year": 19')
    assert text.startswith('{"title": "the lamp", "year": 19')
    assert conforms(FILM)(members_of(text))


def test_what_begins_no_record_is_left_alone() -> None:
    grammar = Grammar(tokenizer(), FILM, len(tokenizer()))
    assert grammar.begin(200, tokenizer().encode("The lamp hums")) is None
    assert grammar.allowed([None]).all()


def test_too_few_tokens_for_any_record_are_refused() -> None:
    grammar = Grammar(tokenizer(), FILM, len(tokenizer()))
    assert grammar.begin(grammar.least) is not None
    with pytest.raises(ModelError, match="and with every member it takes") as refused:
        grammar.begin(grammar.least - 1)
    assert "Raise max_tokens" in str(refused.value)


def test_a_grammar_travels_to_another_process() -> None:
    own = Grammar(tokenizer(), FILM, len(tokenizer()))
    other = pickle.loads(pickle.dumps(own))
    assert (other.width, other.least) == (own.width, own.least)

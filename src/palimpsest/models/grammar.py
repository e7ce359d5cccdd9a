"""The tokens with which a record that is a JSON object can go on, so that what is drawn parses and conforms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from palimpsest.errors import ModelError
from palimpsest.models.tokens import specials
from palimpsest.records.conformity import grammar_of

_SPARE = 8  # tokens that end what is half written: a character, a number, a key
_MOST = 10_000  # tokens of the shortest record, at most


class Grammar:
    """Says which tokens may come next in a record of a public JSON schema.

    Guarantee: what it allows is a function of the schema, the tokenizer and the tokens that were written. It reads no
    logits and no private row: to draw among the allowed tokens alone is post-processing of a released model, and a
    public set of candidates where tokens are drawn from private contexts.

    Attributes:
        width: tokens of the model's logits.
        least: tokens of a record with every member, and as little in each as the schema asks for.
        spare: tokens by which the rest of a record may grow at once: by members that need not be there.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, schema: Mapping[str, Any], width: int) -> None:
        """Read the schema for a model with logits of `width` tokens.

        Raises:
            ModelError: the tokenizer cannot spell a record, or does not say how it spells.
        """
        from llguidance import LLMatcher
        from llguidance.hf import from_tokenizer

        self._made_of = (tokenizer, schema, width)
        try:
            known = from_tokenizer(tokenizer, width, specials(tokenizer).eos)  # type: ignore[arg-type]
        except ValueError as error:
            raise ModelError(f"The model's tokenizer cannot be held to a JSON schema: {error}.", _OTHER) from None
        self.width, self._matcher = width, LLMatcher(known, grammar_of(schema), log_level=0)
        spelt = [known.decode_bytes([token]) for token in range(width)]
        self._sizes = np.array([len(word) for word in spelt])
        tests = (bytes.isalpha, _ends_string, _ends_nest, _ends_value)
        self._letters, *self._closing = (np.array([test(word) for word in spelt]) for test in tests)
        full = LLMatcher(known, grammar_of(schema, whole=True), log_level=0)
        shortest = self.count_to_end(self._matcher)
        self.least = shortest if full.is_error() else self.count_to_end(full)
        self.spare = _SPARE + self.least - shortest

    def __reduce__(self) -> tuple[type["Grammar"], tuple[Any, ...]]:
        """Send what it is made of to other processes, which read the schema anew."""
        return Grammar, self._made_of

    def begin(self, most: int, written: Sequence[int] = ()) -> "Spelling | None":
        """Begin a record of at most `most` tokens, or go on with one; None where no record begins so.

        Raises:
            ModelError: the shortest record with every member has more tokens.
        """
        if most < self.least and not written:
            raise ModelError(
                f"A record may have {most} tokens, and with every member it takes {self.least}.",
                "Raise max_tokens, or ask for fewer members in json_schema.",
            )
        matcher = self._matcher.deep_copy()
        whole = matcher.try_consume_tokens(list(written)) == len(written)
        return Spelling(self, matcher, most - len(written)) if whole else None

    def allowed(self, states: "Sequence[Spelling | None]") -> torch.Tensor:
        """Return the tokens that may come next in each record, bool (records, width); any where there is none."""
        anything = np.ones(self.width, dtype=np.bool_)
        return torch.from_numpy(np.stack([anything if state is None else state.allowed() for state in states]))

    def hurry(self, allowed: np.ndarray) -> np.ndarray:
        """Return those of the allowed tokens, bool (width,), that bring a record to its end; all where none does."""
        string, nest, value = self._closing
        inside = (allowed & self._letters).any()  # of a string, in which a bracket ends nothing
        nearer = [allowed & tokens for tokens in ((string, nest, value) if inside else (nest, string, value))]
        return next((tokens for tokens in nearer if tokens.any()), allowed)

    def count_to_end(self, matcher: Any) -> int:
        """Count the tokens that bring a record to its end, short ones where there is a choice; at most `_MOST`."""
        hasty = Spelling(self, matcher.deep_copy(), None)
        for count in range(1, _MOST):
            if not hasty.take(int(np.where(hasty.allowed(), self._sizes, _MOST).argmin())):
                return count
        return _MOST

    def unpack(self, bits: bytes) -> np.ndarray:
        """Return a mask of one bit a token as bool (width,)."""
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=self.width, bitorder="little").astype(np.bool_)


class Spelling:
    """A record under way, of which `left` tokens may still come; None closes it at once."""

    def __init__(self, grammar: Grammar, matcher: Any, left: int | None) -> None:
        self._grammar, self._matcher, self._left = grammar, matcher, left or 0
        self._due = grammar.least + _SPARE if left else 0  # where it may be late, in tokens that are left
        self._late = left is None

    def allowed(self) -> np.ndarray:
        """Return the tokens that may come next, bool (width,): EOS alone after a whole record.

        Where only one spelling is left, as of a key, its first token is alone. Where no more tokens are left than
        its end takes, strings, lists and objects are closed.

        Raises:
            ModelError: no token of the vocabulary goes on with the record.
        """
        if forced := self._matcher.compute_ff_tokens():
            return np.arange(self._grammar.width) == forced[0]
        tokens = self._grammar.unpack(self._matcher.compute_bitmask())
        if self._matcher.is_error() or not tokens.any():
            raise ModelError("The model's tokens cannot spell a record of json_schema.", _OTHER)
        return self._grammar.hurry(tokens) if self._is_late() else tokens

    def take(self, token: int) -> bool:
        """Write a token that is allowed; return whether the record goes on."""
        self._left -= 1
        return bool(self._matcher.consume_token(token)) and not self._matcher.is_stopped()

    def _is_late(self) -> bool:
        if not self._late and self._left <= self._due:
            self._due = self._grammar.count_to_end(self._matcher) + self._grammar.spare
            self._late = self._left <= self._due
        return self._late


_OTHER = "Use a model with a tokenizer.json that has every byte, as all pretrained ones do."


def _ends_string(spelt: bytes) -> bool:
    return spelt.startswith(b'"') and not spelt.strip(b'"]}')


def _ends_nest(spelt: bytes) -> bool:
    return bool(spelt) and not spelt.strip(b"]}")


def _ends_value(spelt: bytes) -> bool:
    return spelt.startswith(b",")

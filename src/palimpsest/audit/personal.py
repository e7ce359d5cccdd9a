"""Finds personal data in texts, by kind: values that reach, charge, number or name one person.

It favours recall over precision: a product code may pass for an identifier, a country for a name. Counts of such values
must be compared with a control in which false finds are as common; the generators' filter is the precise one.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import regex
from stdnum import luhn

from palimpsest.records.keyed import normalise
from palimpsest.records.personal import mod97
from palimpsest.records.segment import SIGN, find_words, is_unspaced

_HYPHENS = str.maketrans(dict.fromkeys("‐‑‒–", "-"))
_DATE = re.compile(r"(?:\d\d?[./-]\d\d?[./-]\d{4}|\d{4}[./-]\d\d?[./-]\d\d?|[12]\d{3}-[12]\d{3})(?!\d)")  # or two years
_SHORTEST_IBAN = 15


@dataclass(frozen=True)
class _Kind:
    """The pattern of one kind, and a function to its canonical spelling, or None where a match is not of the kind."""

    name: str
    pattern: re.Pattern[str]
    canonical: Callable[[str], str | None]


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _iban(text: str) -> str | None:
    """The longest beginning with right check digits that ends where a group does: a word may follow the number."""
    groups = text.split(" ")
    endings = ("".join(groups[:last]) for last in range(len(groups), 0, -1))
    return next((iban for iban in endings if len(iban) >= _SHORTEST_IBAN and mod97(iban)), None)


def _card(text: str) -> str | None:
    digits = _digits(text)
    return digits if luhn.is_valid(digits) else None


def _phone(text: str) -> str | None:
    """Return the digits of a number with international prefix, leading 0 or three North American groups; no date."""
    digits = _digits(text)
    plain = digits.removeprefix("00") if text.startswith("00") else digits
    dialled = text.startswith(("+", "0", "(0")) or re.fullmatch(r"(?:1[ .-])?\(?[2-9]\d\d\)?[ .-]\d{3}[ .-]\d{4}", text)
    return plain if dialled and 8 <= len(plain) <= 15 and not _DATE.match(text) else None


def _identifier(text: str) -> str | None:
    """Return letters and digits with at least six digits."""
    return text.replace("-", "") if len(_digits(text)) >= 6 and not _DATE.fullmatch(text) else None


# Over the normalised text, in this order; matches are removed before the next kind is looked for.
_KINDS = (
    _Kind("email", re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}"), str),
    _Kind(
        "iban", re.compile(r"(?<![a-z0-9])[a-z]{2}\d\d(?: ?[a-z0-9]{4}){2,7}(?: ?[a-z0-9]{1,3})?(?![a-z0-9])"), _iban
    ),
    _Kind("card", re.compile(r"(?<![\d+])[2-6](?:[ -]?\d){12,18}(?!\d)"), _card),
    _Kind("phone", re.compile(r"(?<![\w.,:/+-])(?:\+ ?)?\(?\d(?:[ ./()-]{0,2}\d){7,16}(?!\w)"), _phone),
    _Kind("identifier", re.compile(r"[^\W_]+(?:-[^\W_]+)*"), _identifier),
)
# Two to four capitalised words in a row, in any script that has capitals; over the unchanged text.
_CAPITALISED = r"(?:Mc|Mac|\p{Lu}['’])?\p{Lu}\p{Ll}+(?:-\p{Lu}\p{Ll}+)?"
_NAME = regex.compile(rf"(?<!\w){_CAPITALISED}(?: {_CAPITALISED}){{1,3}}(?!\w)")

_UNSPACED = regex.compile(f"(?V1){SIGN}")  # a value begins and ends beside such a sign, without a blank

KINDS = (*(kind.name for kind in _KINDS), "name")
_EXAMPLES = {
    "email": "ann.lee@post.example",
    "iban": "DE89 3704 0044 0532 0130 00",
    "card": "4111 1111 1111 1111",
    "phone": "+44 20 7946 0958",
    "identifier": "KX-4829-1234-AB",
}


def personal_values(text: str) -> set[tuple[str, str]]:
    """The personal data in a text as (kind, value), the value in one spelling whatever its case, spaces and hyphens.

    Kinds are `KINDS`: e-mail address, IBAN and payment card (with right check digits), telephone number, identifier (a
    run of letters and digits with six digits or more) and name (capitalised words in a row). Local telephone numbers
    without an area code, postal addresses, single names and names in scripts without capitals are not found.

    >>> sorted(personal_values("Mail Ann Lee: A.Lee@post.example, +44 20 7946 0958"))
    [('email', 'a.lee@post.example'), ('name', 'mail ann lee'), ('phone', '442079460958')]
    """
    apart = _UNSPACED.sub("\n", unicodedata.normalize("NFKC", text))
    found = {("name", name.casefold()) for name in _NAME.findall(apart)}
    plain = _UNSPACED.sub("\n", normalise(text)).translate(_HYPHENS)
    for kind in _KINDS:
        plain = kind.pattern.sub(lambda match, kind=kind: _note_value(match[0], kind, found), plain)  # type: ignore[misc]
    return found


def _note_value(match: str, kind: _Kind, found: set[tuple[str, str]]) -> str:
    """Add the match to the found values, and return its replacement in the text."""
    value = kind.canonical(match)
    if value is None:
        return match
    found.add((kind.name, value))
    return "\n"


def finds_planted(kind: str, text: str) -> bool:
    """Tell whether a value of this kind is found where it is put into the middle of a text, as the text writes words.

    A name is two words of the text with capitals, where its script has any.
    """
    spans = find_words(text)
    if len(spans) < 2:
        return False
    middle = (len(spans) - 1) // 2
    name = " ".join(text[start:end].title() for start, end in spans[middle : middle + 2])
    value, at = _EXAMPLES.get(kind, name), spans[middle][0]
    blank = "" if is_unspaced(text[at]) else " "
    found = personal_values(f"{text[:at]}{value}{blank}{text[at:]}")
    if kind == "name":
        return any(one == kind and name.casefold() in held for one, held in found)
    return bool({one for one in personal_values(value) if one[0] == kind} & found)

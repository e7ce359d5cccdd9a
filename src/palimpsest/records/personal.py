"""Detection of numbers and addresses that reach, charge or name one person, in texts of any script."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from itertools import pairwise

from phonenumbers import Leniency, NumberParseException, PhoneMetadata, PhoneNumberMatcher, is_valid_number, parse
from stdnum import iban, luhn, numdb
from stdnum.cn import ric
from stdnum.iso7064 import mod_97_10

from palimpsest.records.keyed import normalise
from palimpsest.records.record import Record
from palimpsest.records.structured import texts_of

_MOST_DIGITS = 19  # of a number that means something to one person: a card
_DAY = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d$")
_RUN = re.compile(r"\d+(?:(?!\. )[ ./()-]{1,3}\d+)+")
_CODE = re.compile(r"[a-z][./-]?$")
_CARDS = ((4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3))
_ISSUER = re.compile(r"[3-6]|2[2-7]")  # none starts with what could be a year
# The sizes of the groups in which a person's number is written -> modules of stdnum that know it.
_GROUPS: dict[tuple[int, ...], tuple[str, ...]] = {
    (3, 2, 4): ("us.ssn",),
    (3, 3, 3): ("ca.sin", "nl.bsn"),
    (4, 3, 2): ("nl.bsn",),
    (3, 3, 4): ("gb.nhs",),
    (2, 3, 3, 3): ("de.idnr",),
    (2, 3, 3, 1): ("cl.rut",),
    (1, 3, 3, 1): ("cl.rut",),
    (8, 1): ("cl.rut", "il.idnr"),
    (6, 3): ("cz.rc",),
    (6, 4): ("se.personnummer", "dk.cpr", "cz.rc", "bg.egn"),
    (8, 4): ("se.personnummer",),
    (6, 5): ("no.fodselsnummer", "pl.pesel"),
    (4, 4, 4): ("in_.aadhaar", "jp.in_"),
    (3, 4, 4, 2): ("ch.ssn",),
    (6, 2, 4): ("my.nric",),
    (5, 7, 1): ("pk.cnic",),
    (4, 4, 4, 4): ("id.nik",),
    (6, 6, 4): ("id.nik",),
    (1, 4, 5, 2, 1): ("th.pin",),
    (1, 2, 2, 2, 3, 3, 2): ("fr.nir",),
}
# Digits of numbers whose check digits and birth dates tell enough, however they are grouped.
_DIGITS: dict[int, tuple[str, ...]] = {
    11: ("br.cpf", "tr.tckimlik", "be.nn"),
    13: ("kr.rrn", "ro.cnp", "za.idnr"),
    18: ("cn.ric",),
}
_ANY_LETTERED = re.compile(r"\d{3}[ -]?[a-z]|2[ab] ?\d")  # one of them has such a place
_ACCOUNT = re.compile(r"(?=([a-z]{2}\d\d(?:[ -]?[a-z0-9]){11,30}))")
# Country, check digits, in some countries a bank code of four letters or a letter, then digits to their end.
_ACCOUNT_OF_DIGITS = re.compile(r"[a-z]{2}\d\d ?(?:[a-z]{4} ?|[a-z](?=\d))?\d(?: ?\d){9,26}(?!\d)")
_ACCOUNT_IN_FOURS = re.compile(r"[a-z]{2}\d\d (?:[a-z]{4}|[a-z]\d{3}|\d{4}) \d{4} \d[\d ]*")
_REGIONS: tuple[str, ...] = (
    *("US", "MX", "BR", "CL", "CO", "PE", "ES", "PT", "IT", "LI", "GR", "HU", "CZ", "PL"),
    *("RU", "KZ", "BY", "GE", "TJ", "TM", "UZ", "TR", "IN", "NP", "CN"),
    *("AO", "CG", "CI", "CM", "GN", "GQ", "GW", "MZ", "RW", "SN"),
)
_FEWEST = 9  # digits of a national number
_SIGNED = 10  # digits; with + these are a number, whatever the plans say
_DIALLED = re.compile(r"\+[ (]?([1-9](?:(?: ?\(|\)[ -]?|[ ./-])?\d){6,14})(?!\d)")
_ADDRESS = re.compile(
    # E-mail address; the top-level domain has letters, so that "2@1.50" passes.
    r"[\w+-]@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}"
    # URL with user info. An @ in the path is no user info.
    r"|://[^\s/?#@]+@[^\s/?#@]"
)
_LONG = re.compile(r"(?<!\d)(?<!\d[.,])\d{9,}")  # not the decimals of a fraction
# Seven digits; or the four of a person's number of India, or the first of an account that goes on in letters.
_ENOUGH_DIGITS = re.compile(r"\d(?:\D*\d){6}|\d{4}[a-z]|[a-z]{2}\d\d[ -]?[a-z0-9]{4}")


class _Signs(dict[int, str | None]):
    """Code point -> its meaning in a number: an ASCII digit, a hyphen, a dot, or nothing for an unseen mark."""

    def __missing__(self, code: int) -> str | None:
        self[code] = _sign(chr(code))
        return self[code]


def _sign(character: str) -> str | None:
    match unicodedata.category(character):
        case "Nd":
            return str(unicodedata.decimal(character))
        case "Pd":
            return "-"
        case "Mn" | "Mc" | "Me" | "Cf":  # vowel signs, and marks of direction that a copied number brings along
            return None
        case _:
            return character


_SIGNS = _Signs({ord(sign): "-" for sign in "−⁃ー"} | {ord(sign): "." for sign in "·・•"})


def _normalise_numbers(text: str) -> str:
    """Write the numbers of a text in ASCII: digits of any script, hyphens, dots and spaces of one kind, lower case.

    >>> _normalise_numbers("Tel．：０９０ー１２３４ー٥٦٧٨")
    'tel.:090-1234-5678'
    """
    folded = normalise(text)
    return folded if folded.isascii() else " ".join(folded.translate(_SIGNS).split())


@dataclass(frozen=True)
class _Grouped:
    """A number in two groups of digits or more.

    Attributes:
        groups: its digits, group by group.
        joints: the signs between each two groups.
        code: whether a Latin letter is in front of it, as in "AB-200-300-4000".
    """

    groups: tuple[str, ...]
    joints: tuple[str, ...]
    code: bool

    @cached_property
    def digits(self) -> str:
        """All of its digits."""
        return "".join(self.groups)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of digits in each group."""
        return tuple(map(len, self.groups))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Its distinct joints, without spaces around a sign."""
        return frozenset(map(_kind, self.joints))

    @property
    def turns(self) -> int:
        """How often the kind of joint changes; the joint after an area code, and brackets, do not count."""
        kinds = [kind for kind in map(_kind, self.joints[1:]) if not {"(", ")"} & set(kind)]
        return sum(kind != after for kind, after in pairwise(kinds))

    @property
    def day(self) -> bool:
        """Whether it begins like a date: day, month and year in any order, month and year, or a year and a month."""
        first, second, third = (*self.groups, "", "")[:3]
        if len(first) <= 2 and _is_year(second):
            return self.sizes != (2, 4, 4) or self.joints[0] in "./"  # a telephone number of Tokyo or Taipei
        if len(second) > 2:
            return False
        return (len(first) <= 2 and _is_year(third)) or (_is_year(first) and len(third) <= 2)

    @property
    def ordinary(self) -> bool:
        """Whether it is a number of ordinary sentences: years, a date in one piece, a machine's address (IPv4)."""
        if self.kinds == {"."} and len(self.groups) == 4 and all(int(group) < 256 for group in self.groups):
            return True
        return all(map(_is_year, self.groups)) or _DAY.match(self.groups[0]) is not None


def _is_year(group: str) -> bool:
    """Return whether a group of digits could be a year from 1800 to 2199."""
    return len(group) == 4 and group[:2] in ("18", "19", "20", "21")


def _kind(joint: str) -> str:
    return joint.strip() or " "


def _find_grouped(text: str) -> Iterator[_Grouped]:
    """Yield every number of 8 to 19 digits that could be read in a `_normalise_numbers` text, in two groups or more.

    A number ends where another joint begins: "2019 03-1234-5678" has one in the middle of a run of digits, and
    "1998 2019 03 1234" has none, for nothing tells where it would begin. A hyphen or a dot never ends one.
    """
    for run in _RUN.finditer(text):
        groups, joints = re.findall(r"\d+", run[0]), re.findall(r"\D+", run[0])
        code = _CODE.search(text, max(0, run.start() - 2), run.start()) is not None
        for start, end in _spans(groups, joints):
            yield _Grouped(tuple(groups[start:end]), tuple(joints[start : end - 1]), code and start == 0)


def _spans(groups: list[str], joints: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where numbers could begin and end in a run."""
    for start in range(len(groups) - 1):
        size = len(groups[start])
        for end in range(start + 2, len(groups) + 1):
            size += len(groups[end - 1])
            if size > _MOST_DIGITS:
                break
            inner = {_kind(joint) for joint in joints[start : end - 1]}
            outer = [*joints[max(0, start - 1) : start], *joints[end - 1 : end]]
            if size >= 8 and all(_is_boundary(joint, inner) for joint in outer):
                yield start, end


def _is_boundary(joint: str, inner: set[str]) -> bool:
    """Return whether a joint ends a number that has the `inner` joints."""
    return (" " in joint or "/" in joint) and _kind(joint) not in inner


# Numbers with letters. Each is found by its digits, so it does not matter which letters come before.
_LETTERED = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("cn.ric", r"\d(?:[ -]?\d){16}[ -]?x"),
        ("es.dni", r"\d\d\.?\d{3}\.?\d{3}-?[a-z]"),
        ("es.nie", r"[xyz]-?\d{7}-?[a-z]"),
        ("fi.hetu", r"\d{6}[-+a-fu-y]\d{3}[a-y]"),
        ("fr.nir", r"[1-4] ?\d\d ?\d\d ?2[ab] ?\d{3} ?\d{3} ?\d\d"),
        ("cl.rut", r"\d\d?\.?\d{3}\.?\d{3}-k"),
        ("ie.pps", r"\d{7}[a-w]"),
        ("in_.pan", r"[a-z]{3}p[a-z]\d{4}[a-z]"),  # p: of a person
        ("it.codicefiscale", r"[a-z]{3} ?[a-z]{3} ?\d\d[a-z]\d\d ?[a-z]\d{3}[a-z]"),
        ("mx.curp", r"[a-z]{4}\d{6}[hm][a-z]{5}[0-9a-z]\d"),
    )
)


def _has_account(text: str) -> bool:
    """Return whether a plain text has a valid IBAN (check digits): of its country's length, or to its last digit."""
    if any(mod97(_strip_joints(match[0])) for match in _ACCOUNT_OF_DIGITS.finditer(text)):
        return True
    found = (_strip_joints(match[1]).upper() for match in _ACCOUNT.finditer(text))
    return any(iban.is_valid(number[: _length(number[:2])], check_country=False) for number in found)


@cache
def _length(country: str) -> int:
    """Return the length of a country's IBANs; 0 where it has none."""
    known = numdb.get("iban").info(country)[0][1]
    return 4 + sum(map(int, re.findall(r"\d+", known["bban"]))) if known else 0


def _remove_accounts(text: str) -> str:
    """Remove what is grouped like an IBAN from a plain text: its groups of four digits are numbers of nothing else."""
    return _ACCOUNT_IN_FOURS.sub("", text)


def mod97(number: str) -> bool:
    """Return whether the digits after the country code check an IBAN (ISO 13616, ISO 7064 MOD 97-10)."""
    return mod_97_10.is_valid(number[4:] + number[:4])


def _is_card(number: _Grouped) -> bool:
    """Return whether a number is that of a payment card, in its groups (Luhn check)."""
    return number.sizes in _CARDS and _ISSUER.match(number.digits) is not None and luhn.is_valid(number.digits)


def _is_identity(number: _Grouped) -> bool:
    """Return whether a number in groups is a person's number, of a state or its insurance."""
    names = (*_GROUPS.get(number.sizes, ()), *_DIGITS.get(len(number.digits), ()))
    return (
        bool(names) and _has_uniform_joints(number) and not number.ordinary and _passes_any_rule(names, number.digits)
    )


def _has_uniform_joints(number: _Grouped) -> bool:
    """Return whether all joints are of one kind, or dots and hyphens between more than three groups (CPF, NN)."""
    return len(number.kinds) == 1 or (len(number.groups) > 3 and number.kinds == {".", "-"})


def _passes_any_rule(names: Iterable[str], number: str) -> bool:
    return any(_rule(name)(number) for name in names)


def _has_lettered_number(text: str) -> bool:
    """Return whether a plain text has a person's number with letters in it."""
    return _ANY_LETTERED.search(text) is not None and any(
        _rule(name)(re.sub(r"[ .]", "", match[0])) for name, pattern in _LETTERED for match in pattern.finditer(text)
    )


@cache
def _rule(name: str) -> Callable[[str], bool]:
    """Return the check of a module of stdnum, which is loaded on first use, for there are many."""
    if name == "cn.ric":
        return _is_resident
    is_valid: Callable[[str], bool] = import_module(f"stdnum.{name}").is_valid
    return is_valid


def _is_resident(number: str) -> bool:
    """Return whether check digit and birth date are those of a Chinese resident.

    stdnum asks for the county too, and its list has gaps.
    """
    number = number.replace("-", "")
    with suppress(ValueError):
        return ric.calc_check_digit(number) == number[-1].upper() and ric.get_birth_date(number) is not None
    return False


def _strip_joints(number: str) -> str:
    return number.replace(" ", "").replace("-", "")


"""Where national numbers are written without a leading 0 and have nine digits or more (ISO 3166; "US" is with Canada).

With a leading 0 a number is known for one whatever its region. One of eight digits is not told from a date or an
order number, so it is found where its region is named: "DK", "HK", "NO", "SG".
"""


def _has_dialled_number(text: str) -> bool:
    """Return whether a plain text has an international number with its +."""
    return any(_is_international(re.sub(r"\D", "", match[1])) for match in _DIALLED.finditer(text))


def _is_international(digits: str) -> bool:
    if len(digits) >= _SIGNED:
        return True
    with suppress(NumberParseException):
        return is_valid_number(parse(f"+{digits}"))
    return False


def _is_telephone(number: _Grouped, regions: Sequence[str]) -> bool:
    """Return whether a number in groups is a telephone number: with 00, a leading 0, or the groups of its region."""
    if _has_country_code(number):
        return True
    if number.day or number.turns > 1:
        return False
    return _has_trunk_prefix(number) or _is_north_american(number) or _is_national(number, regions)


def _has_country_code(number: _Grouped) -> bool:
    """Return whether the number has 00 and a country code."""
    starts = number.groups[0].startswith("00") and re.match("00[1-9]", number.digits)
    return bool(starts) and 12 <= len(number.digits) <= 17


def _has_trunk_prefix(number: _Grouped) -> bool:
    """Return whether it has a leading 0 and an area code; the groups after the 0 tell it from the 0 of a fraction."""
    groups = number.groups
    if number.turns:
        return False
    if groups[0] == "0" and "." not in number.joints[0]:
        groups = (groups[0] + groups[1], *groups[2:])
    shaped = len(groups) > 1 and 2 <= len(groups[0]) <= 5 and all(len(group) > 1 for group in groups)
    return shaped and re.match("0[1-9]", groups[0]) is not None and 9 <= len(number.digits) <= 12


def _is_north_american(number: _Grouped) -> bool:
    """Return whether it has three groups with hyphens, dots or brackets, of any area code, not after letters."""
    if number.sizes[-3:] != (3, 3, 4) or number.groups[:-3] not in ((), ("1",)) or number.code:
        return False
    behind, last = number.joints[-2:]
    return number.groups[-3][0] in "23456789" and ((behind == last and last in "-.") or ")" in behind)


def _is_national(number: _Grouped, regions: Sequence[str]) -> bool:
    """Return whether it is of a region's plan, grouped as there; no amount in round groups, no order of a year."""
    if number.ordinary or _is_year(number.groups[0]) or all(group[-1] == "0" for group in number.groups):
        return False
    written, digits = " ".join(number.groups), number.digits
    return any(
        len(digits) >= _fewest_digits(region) and _plan(region).fullmatch(digits) and _matches_grouping(written, region)
        for region in regions
    )


@cache
def _fewest_digits(region: str) -> int:
    """Return the least digits of a national number: eight only where no mobile number has more."""
    metadata = _metadata(region)
    return min(_FEWEST, max(metadata.mobile.possible_length)) if metadata.mobile else _FEWEST


@cache
def _plan(region: str) -> re.Pattern[str]:
    """Return the pattern of a region's fixed-line and mobile numbers. The matcher knows more, and is slow."""
    metadata = _metadata(region)
    numbers = [line.national_number_pattern for line in (metadata.fixed_line, metadata.mobile) if line]
    return re.compile(f"(?:{metadata.national_prefix_for_parsing or ''})?(?:{'|'.join(filter(None, numbers))})")


def _metadata(region: str) -> PhoneMetadata:
    """Return a region's metadata; ValueError if it is no region."""
    metadata = PhoneMetadata.metadata_for_region(region)
    if metadata is None:
        raise ValueError(f"{region!r} is no region of telephone numbers")
    return metadata


def _matches_grouping(number: str, region: str) -> bool:
    """Return whether the matcher, given nothing else, takes all of it for one number in the groups of its region."""
    matcher = PhoneNumberMatcher(number, region, leniency=Leniency.STRICT_GROUPING)
    return any(match.raw_string == number for match in matcher)


def is_personal(record: Record, regions: Sequence[str] = _REGIONS) -> bool:
    """Return whether a row's text, label or a string of its JSON `looks_personal`."""
    return any(looks_personal(text, regions) for text in texts_of(record))


def looks_personal(text: str, regions: Sequence[str] = _REGIONS) -> bool:
    """Return whether a text seems to hold a way to reach, charge or name one person, whatever letters are beside it.

    That is: an e-mail address, a URL with user info, a telephone number, a card number (Luhn check), an IBAN (ISO 7064
    check), a person's number of some thirty states (by its form and check digits), or nine digits or more in a
    row. Years, prices, scores, dates and model numbers pass. So do local telephone numbers without an area code, and
    names.

    Args:
        text: of any script; full-width forms and digits of other scripts are read as ASCII.
        regions: the regions whose telephone numbers are recognised without a leading 0 (ISO 3166), see `_REGIONS`.

    >>> [looks_personal(text) for text in ("電話は090-1234-5678です", "0532 123 45 67'yi ara", "Since 1998-2001")]
    [True, True, False]
    """
    read = _normalise_numbers(text)
    if "@" in read and _ADDRESS.search(read):
        return True
    return _ENOUGH_DIGITS.search(read) is not None and _has_number(read, regions)


def _has_number(text: str, regions: Sequence[str]) -> bool:
    if _LONG.search(text) or _has_dialled_number(text) or _has_lettered_number(text) or _has_account(text):
        return True
    numbers = _find_grouped(_remove_accounts(text))
    return any(_is_card(number) or _is_identity(number) or _is_telephone(number, regions) for number in numbers)

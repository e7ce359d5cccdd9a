"""Numbers that charge or name one person, by the rules of `python-stdnum`: cards, accounts and persons' numbers."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module

from stdnum import iban, luhn, numdb
from stdnum.cn import ric
from stdnum.iso7064 import mod_97_10

from palimpsest.records.grouped import Grouped

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
_ANY_LETTERED = re.compile(r"\d{3}[ -]?[a-z]|2[ab] ?\d")  # one of them has such a place
_ACCOUNT = re.compile(r"(?=([a-z]{2}\d\d(?:[ -]?[a-z0-9]){11,30}))")
# Country, check digits, in some countries a bank code of four letters or a letter, then digits to their end.
_ACCOUNT_OF_DIGITS = re.compile(r"[a-z]{2}\d\d ?(?:[a-z]{4} ?|[a-z](?=\d))?\d(?: ?\d){9,26}(?!\d)")
_ACCOUNT_IN_FOURS = re.compile(r"[a-z]{2}\d\d (?:[a-z]{4}|[a-z]\d{3}|\d{4}) \d{4} \d[\d ]*")


def account(text: str) -> bool:
    """Return whether a plain text has a valid IBAN (check digits): of its country's length, or to its last digit."""
    if any(mod97(_bare(match[0])) for match in _ACCOUNT_OF_DIGITS.finditer(text)):
        return True
    found = (_bare(match[1]).upper() for match in _ACCOUNT.finditer(text))
    return any(iban.is_valid(number[: _length(number[:2])], check_country=False) for number in found)


@cache
def _length(country: str) -> int:
    """Return the length of a country's IBANs; 0 where it has none."""
    known = numdb.get("iban").info(country)[0][1]
    return 4 + sum(map(int, re.findall(r"\d+", known["bban"]))) if known else 0


def without_accounts(text: str) -> str:
    """Remove what is grouped like an IBAN from a plain text: its groups of four digits are numbers of nothing else."""
    return _ACCOUNT_IN_FOURS.sub("", text)


def mod97(number: str) -> bool:
    """Return whether the digits after the country code check an IBAN (ISO 13616, ISO 7064 MOD 97-10)."""
    return mod_97_10.is_valid(number[4:] + number[:4])


def card(number: Grouped) -> bool:
    """Return whether a number is that of a payment card, in its groups (Luhn check)."""
    return number.sizes in _CARDS and _ISSUER.match(number.digits) is not None and luhn.is_valid(number.digits)


def identity(number: Grouped) -> bool:
    """Return whether a number in groups is a person's number, of a state or its insurance."""
    names = (*_GROUPS.get(number.sizes, ()), *_DIGITS.get(len(number.digits), ()))
    return bool(names) and _joined(number) and not number.ordinary and _known(names, number.digits)


def _joined(number: Grouped) -> bool:
    """Return whether all joints are of one kind, or dots and hyphens between more than three groups (CPF, NN)."""
    return len(number.kinds) == 1 or (len(number.groups) > 3 and number.kinds == {".", "-"})


def _known(names: Iterable[str], number: str) -> bool:
    return any(_rule(name)(number) for name in names)


def lettered(text: str) -> bool:
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


def _bare(number: str) -> str:
    return number.replace(" ", "").replace("-", "")

"""Rows in many scripts with personal data planted in them, and rows with the other numbers of ordinary texts.

All is drawn from a seed. Check digits are computed by stdnum, telephone numbers are valid by phonenumbers.
"""

import random
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import NamedTuple

import phonenumbers
from phonenumbers import PhoneNumberFormat, PhoneNumberType
from stdnum import iban, luhn, numdb, verhoeff
from stdnum.be import nn
from stdnum.br import cpf
from stdnum.ca import sin
from stdnum.ch import ssn as ahv
from stdnum.cn import ric
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.iso7064 import mod_11_10
from stdnum.it import codicefiscale
from stdnum.jp import in_ as my_number
from stdnum.kr import rrn
from stdnum.mx import curp
from stdnum.no import fodselsnummer
from stdnum.pl import pesel
from stdnum.ro import cnp
from stdnum.th import pin
from stdnum.tr import tckimlik


class Script(NamedTuple):
    """How a text of a script goes on around a number, whose telephone numbers it has, and its digits."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    regions: tuple[str, ...]
    digits: str = "0123456789"


SCRIPTS = {
    "Latin": Script(
        ("call me at", "numarası", "reach her under", "tel", "Nr"),
        ("'yi ara", "nolu hat", "before noon", "yı", "de"),
        ("US", "GB", "DE", "FR", "ES", "IT", "TR", "BR", "PL", "NL", "MX", "VN"),
    ),
    "Cyrillic": Script(
        ("телефон", "пишите на", "номер"), ("или позже", "го", "звоните"), ("RU", "UA", "BY", "BG", "UZ")
    ),
    "Greek": Script(("τηλέφωνο", "καλέστε"), ("το πρωί", "και"), ("GR",)),
    "Arabic": Script(("اتصل على", "رقم"), ("اليوم", "و"), ("EG", "SA", "MA", "IQ", "IR"), "٠١٢٣٤٥٦٧٨٩"),
    "Hebrew": Script(("טלפון", "מספר"), ("היום", "ו"), ("IL",)),
    "Devanagari": Script(("फ़ोन", "नंबर"), ("पर", "को"), ("IN", "NP"), "०१२३४५६७८९"),
    "Thai": Script(("โทร", "หมายเลข"), ("ครับ", "นะ"), ("TH",), "๐๑๒๓๔๕๖๗๘๙"),
    "Han": Script(("電話", "号码是", "请联系"), ("谢谢", "号", "。"), ("CN", "TW"), "０１２３４５６７８９"),
    "Japanese": Script(("電話は", "番号"), ("です", "まで"), ("JP",), "０１２３４５６７８９"),
    "Hangul": Script(("전화", "번호는"), ("로 연락", "입니다"), ("KR",), "０１２３４５６７８９"),
}
_FORMATS = (PhoneNumberFormat.NATIONAL, PhoneNumberFormat.INTERNATIONAL, PhoneNumberFormat.E164)


def _digits(rng: random.Random, size: int) -> str:
    return "".join(rng.choices("0123456789", k=size))


def _born(rng: random.Random) -> tuple[str, str, str]:
    """Year, month and day."""
    return str(rng.randint(1950, 2005)), f"{rng.randint(1, 12):02d}", f"{rng.randint(1, 28):02d}"


def telephone(rng: random.Random, region: str) -> str:
    """A valid mobile or fixed-line number in one of its usual forms, with spaces, hyphens, dots or none."""
    kind = rng.choice((PhoneNumberType.MOBILE, PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE))
    example = phonenumbers.example_number_for_type(region, kind)
    start = phonenumbers.format_number(example, PhoneNumberFormat.E164)[:-4]
    for _ in range(1000):
        number = phonenumbers.parse(start + _digits(rng, 4))
        written = phonenumbers.format_number(number, rng.choice(_FORMATS))
        if phonenumbers.is_valid_number(number) and sum(map(str.isdigit, written)) >= 9:
            return _rejoined(rng, written)
    raise AssertionError(f"no telephone number of {region} was drawn")


def _rejoined(rng: random.Random, written: str) -> str:
    match rng.randrange(4):
        case 0:
            return written.replace(" ", "-").replace(")-", ") ")
        case 1:
            return "+" * written.startswith("+") + "".join(filter(str.isdigit, written))
        case 2 if written.startswith("+"):
            return f"00{written[1:]}"
        case _:
            return written


def email(rng: random.Random, region: str) -> str:
    name, host = ("".join(rng.choices("abcdefghij", k=6)) for _ in range(2))
    at = "＠" if region in ("JP", "CN", "TW") and rng.random() < 0.3 else "@"
    return f"{name}{rng.choice(('', '.', '_'))}{rng.randint(1, 99)}{at}{host}.{rng.choice(('com', 'org', 'co.jp'))}"


def account(rng: random.Random, region: str) -> str:
    """An IBAN of some country, in fours or in one piece."""
    country = rng.choice(("DE", "GB", "FR", "TR", "SA", "IL", "NL", "MT", "NO", "GR", "KZ", "BR", "UA"))
    structure = numdb.get("iban").info(country)[0][1]["bban"]
    bban = "".join(
        _digits(rng, size) if kind == "n" else "".join(rng.choices("ABCDEFGHKM", k=size))
        for size, kind in _parts(structure)
    )
    whole = f"{country}{iban.calc_check_digits(f'{country}00{bban}')}{bban}"
    assert iban.is_valid(whole, check_country=False)
    return rng.choice((whole, iban.format(whole), iban.format(whole, "-"), whole.lower()))


def _parts(structure: str) -> Iterator[tuple[int, str]]:
    """Of "4!n6!c": 4 digits, 6 letters or digits."""
    for part in structure.replace("n", "n ").replace("a", "a ").replace("c", "c ").split():
        yield int(part[:-2]), part[-1]


def card(rng: random.Random, region: str) -> str:
    if rng.random() < 0.25:
        digits, ends = f"37{_digits(rng, 12)}", (4, 10, 15)
    else:
        digits, ends = f"{rng.choice('45')}{_digits(rng, 14)}", (4, 8, 12, 16)
    digits += luhn.calc_check_digit(digits)
    return rng.choice((" ", "-", "")).join(digits[a:b] for a, b in zip((0, *ends), ends, strict=False))


def _grouped(sizes: tuple[int, ...], joints: str | tuple[str, ...]) -> Callable[[random.Random, str], str]:
    """Writes digits in groups of these sizes, or, as often, in one piece."""

    def write(rng: random.Random, digits: str) -> str:
        assert sum(sizes) == len(digits), digits
        if rng.random() < 0.5:
            return digits
        left, written = digits, ""
        between = [*joints, ""] if isinstance(joints, tuple) else [*[rng.choice(joints)] * (len(sizes) - 1), ""]
        for size, joint in zip(sizes, between, strict=True):
            written, left = written + left[:size] + joint, left[size:]
        return written

    return write


def _ssn(rng: random.Random) -> str:
    return f"{rng.randint(100, 665)}{rng.randint(10, 99)}{rng.randint(1000, 9999)}"


def _idnr(rng: random.Random) -> str:
    """Ten digits of which one is there twice, and a check digit."""
    first = rng.sample("123456789", 9)
    start = "".join([*first, first[0]])
    return start + mod_11_10.calc_check_digit(start)


def _nir(rng: random.Random) -> str:
    year, month, _ = _born(rng)
    start = f"{rng.choice('12')}{year[2:]}{month}{rng.choice(('75', '13', '2A'))}{_digits(rng, 6)}"
    return start + nir.calc_check_digits(start + "00")


def _ric(rng: random.Random) -> str:
    start = f"{rng.choice(('110105', '310101', '440305'))}{''.join(_born(rng))}{_digits(rng, 3)}"
    return start + ric.calc_check_digit(start + "0")


def _my_number(rng: random.Random) -> str:
    start = _digits(rng, 11)
    return start + my_number.calc_check_digit(start)


def _rrn(rng: random.Random) -> str:
    year, month, day = _born(rng)
    start = f"{year[2:]}{month}{day}{'1' if year < '2000' else '3'}{rng.randint(10, 90)}{_digits(rng, 3)}"
    start = f"{start[:7]}{rng.randint(10, 90)}{start[9:12]}"
    return start + rrn.calc_check_digit(start)


def _tckimlik(rng: random.Random) -> str:
    start = f"{rng.randint(1, 9)}{_digits(rng, 8)}"
    return start + tckimlik.calc_check_digits(start)


def _aadhaar(rng: random.Random) -> str:
    start = f"{rng.randint(2, 9)}{_digits(rng, 10)}"
    return start + verhoeff.calc_check_digit(start)


def _pan(rng: random.Random) -> str:
    letters = "".join(rng.choices("ABCDEFGHJK", k=4))
    return f"{letters[:3]}P{letters[3]}{rng.randint(1000, 9999)}{rng.choice('ABCDEF')}"


def _pin(rng: random.Random) -> str:
    start = f"{rng.randint(1, 8)}{_digits(rng, 11)}"
    return start + pin.calc_check_digit(start)


def _cpf(rng: random.Random) -> str:
    start = f"{rng.randint(1, 9)}{_digits(rng, 8)}"
    for _ in range(2):
        weights = range(len(start) + 1, 1, -1)
        total = sum(weight * int(digit) for weight, digit in zip(weights, start, strict=True))
        start += str((11 - total % 11) % 11 % 10)
    assert cpf.is_valid(start)
    return start


def _dni(rng: random.Random) -> str:
    start = f"{rng.randint(1, 9)}{_digits(rng, 7)}"
    return start + rng.choice(("", "-")) + dni.calc_check_digit(start)


def _nie(rng: random.Random) -> str:
    start = f"{rng.choice('XYZ')}{_digits(rng, 7)}"
    return start + nie.calc_check_digit(start)


def _codice(rng: random.Random) -> str:
    start = f"{''.join(rng.choices('BCDFG', k=6))}{rng.randint(50, 99)}{rng.choice('ABCDE')}{rng.randint(10, 28)}F205"
    whole = start[:15] + codicefiscale.calc_check_digit(start[:15])
    return rng.choice((whole, f"{whole[:3]} {whole[3:6]} {whole[6:11]} {whole[11:]}"))


def _curp(rng: random.Random) -> str:
    year, month, day = _born(rng)
    mark = "0" if year < "2000" else "A"
    start = f"BOXW{year[2:]}{month}{day}{rng.choice('HM')}NERXN{mark}"
    return start + curp.calc_check_digit(start + "0")


def _pesel(rng: random.Random) -> str:
    year, month, day = _born(rng)
    start = f"{year[2:]}{int(month) + (20 if year >= '2000' else 0):02d}{day}{_digits(rng, 4)}"
    return start + pesel.calc_check_digit(start)


def _cnp(rng: random.Random) -> str:
    year, month, day = _born(rng)
    start = f"{'1' if year < '2000' else '5'}{year[2:]}{month}{day}{rng.randint(10, 39)}{_digits(rng, 3)}"
    return start + cnp.calc_check_digit(start)


def _sin(rng: random.Random) -> str:
    start = f"{rng.randint(1, 7)}{_digits(rng, 7)}"
    whole = start + luhn.calc_check_digit(start)
    return whole if sin.is_valid(whole) else _sin(rng)


def _nn(rng: random.Random) -> str:
    year, month, day = _born(rng)
    start = f"{year[2:]}{month}{day}{rng.randint(1, 997):03d}"
    century = "2" if year >= "2000" else ""
    whole = f"{start}{97 - int(century + start) % 97:02d}"
    return whole if nn.is_valid(whole) else _nn(rng)


def _fodselsnummer(rng: random.Random) -> str:
    _, month, day = _born(rng)
    start = f"{day}{month}{rng.randint(50, 99)}{rng.randint(100, 499)}"
    first = fodselsnummer.calc_check_digit1(start)
    whole = start + first + (fodselsnummer.calc_check_digit2(start + first) if first.isdigit() else "-")
    return whole if fodselsnummer.is_valid(whole) else _fodselsnummer(rng)


def _ahv(rng: random.Random) -> str:
    start = f"756{_digits(rng, 9)}"
    weighted = sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(start))
    whole = f"{start}{-weighted % 10}"
    assert ahv.is_valid(whole)
    return whole


def _as_is(rng: random.Random, number: str) -> str:
    return number


# What a person's number is -> how it is drawn, and how it is written.
IDENTITIES: dict[str, tuple[Callable[[random.Random], str], Callable[[random.Random, str], str]]] = {
    "us.ssn": (_ssn, _grouped((3, 2, 4), " -")),
    "ca.sin": (_sin, _grouped((3, 3, 3), " -")),
    "de.idnr": (_idnr, _grouped((2, 3, 3, 3), " ")),
    "fr.nir": (_nir, _grouped((1, 2, 2, 2, 3, 3, 2), " ")),
    "cn.ric": (_ric, _grouped((6, 8, 4), " -")),
    "jp.in_": (_my_number, _grouped((4, 4, 4), " -")),
    "kr.rrn": (_rrn, _grouped((6, 7), " -")),
    "tr.tckimlik": (_tckimlik, _grouped((3, 3, 3, 2), " ")),
    "in_.aadhaar": (_aadhaar, _grouped((4, 4, 4), " -")),
    "in_.pan": (_pan, _as_is),
    "th.pin": (_pin, _grouped((1, 4, 5, 2, 1), " -")),
    "br.cpf": (_cpf, _grouped((3, 3, 3, 2), (".", ".", "-"))),
    "es.dni": (_dni, _as_is),
    "es.nie": (_nie, _as_is),
    "it.codicefiscale": (_codice, _as_is),
    "mx.curp": (_curp, _as_is),
    "pl.pesel": (_pesel, _grouped((6, 5), " ")),
    "ro.cnp": (_cnp, _grouped((1, 6, 6), " ")),
    "be.nn": (_nn, _grouped((2, 2, 2, 3, 2), (".", ".", "-", "."))),
    "no.fodselsnummer": (_fodselsnummer, _grouped((6, 5), " ")),
    "ch.ssn": (_ahv, _grouped((3, 4, 4, 2), ".")),
}


def identity(rng: random.Random, region: str) -> str:
    draw, write = rng.choice([*IDENTITIES.values()])
    return write(rng, draw(rng))


KINDS: dict[str, Callable[[random.Random, str], str]] = {
    "telephone": telephone, "e-mail": email, "iban": account, "card": card, "identity": identity,
}  # fmt: skip


class Planted(NamedTuple):
    """A row with one number or address of a person, glued to letters or not."""

    script: str
    kind: str
    text: str


def planted(count: int, seed: int) -> list[Planted]:
    """Rows of every script and kind in turn."""
    rng = random.Random(seed)
    turns = cycle([(script, kind) for script in SCRIPTS for kind in KINDS])
    return [Planted(script, kind, _planted(rng, SCRIPTS[script], kind)) for script, kind in islice(turns, count)]


def _planted(rng: random.Random, script: Script, kind: str) -> str:
    found = KINDS[kind](rng, rng.choice(script.regions))
    if kind != "e-mail" and rng.random() < 0.25:
        found = found.translate(dict(zip(map(ord, "0123456789"), script.digits, strict=True)))
    before, after = rng.choice(script.before), rng.choice(script.after)
    return f"{before}{rng.choice(('', '', ' ', ':'))}{found}{rng.choice(('', '', ' ', ', '))}{after}"


_CLEAN: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: f"#{rng.randint(1000, 99_999_999)}",  # order numbers
    lambda rng: f"{rng.choice(('PO', 'ORD', 'INV'))}-{rng.randint(2015, 2026)}-{rng.randint(1, 99_999):05d}",
    lambda rng: f"{rng.randint(100, 999)}-{rng.randint(1000, 9999)}",
    lambda rng: f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.{rng.randint(1950, 2030)}",  # dates
    lambda rng: f"{rng.randint(1950, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} {rng.randint(10, 23)}:30",
    lambda rng: f"{rng.randint(1950, 2030)}年{rng.randint(1, 12)}月{rng.randint(1, 28)}日",
    lambda rng: f"{rng.randint(1, 12):02d}/{rng.randint(1, 28):02d}/{rng.randint(1950, 2030)}",
    lambda rng: f"${rng.uniform(1, 99_999):,.2f}",  # prices
    lambda rng: f"{rng.randint(1000, 9_999_999):,}円",
    lambda rng: f"₩{rng.randint(1000, 9_999_999):,}",
    lambda rng: f"{rng.randint(1, 999)} {rng.randint(0, 999):03d},{rng.randint(0, 99):02d} €",
    lambda rng: f"{rng.choice('ABCXYZ')}{rng.choice('ABCXYZ')}-{rng.randint(100, 99_999)}",  # product codes
    lambda rng: f"{rng.choice(('WH', 'i7', 'SKU'))}-{rng.randint(1000, 9999)}{rng.choice(('', 'X', 'KF'))}",
    lambda rng: f"B0{rng.randint(1, 9)}XJ{rng.randint(1, 9)}C8F{rng.randint(1, 9)}",
    lambda rng: str(rng.randint(1800, 2199)),  # years
    lambda rng: f"{rng.randint(1900, 1999)}-{rng.randint(2000, 2030)}",
    lambda rng: " ".join(str(year) for year in range(2010, 2010 + rng.randint(2, 5))),
    lambda rng: f"{rng.uniform(0, 200):.1f} kg, {rng.randint(1, 400)} x {rng.randint(1, 400)} mm",  # measurements
    lambda rng: f"{rng.randint(640, 7680)}x{rng.randint(480, 4320)}",
    lambda rng: f"{rng.uniform(-90, 90):.5f}, {rng.uniform(-180, 180):.5f}",
    lambda rng: f"{rng.randint(90, 180)}/{rng.randint(50, 99)} mmHg, {rng.uniform(35, 41):.1f}°",
    lambda rng: f"INC{rng.randint(0, 9_999_999):07d}",  # ticket numbers
    lambda rng: f"TCK-{rng.randint(10_000, 999_999)}",
    lambda rng: f"{rng.choice(('JIRA', 'BUG'))}-{rng.randint(1, 99_999)} v{rng.randint(1, 9)}.{rng.randint(0, 20)}.1",
    lambda rng: f"{rng.randint(1, 223)}.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
    lambda rng: f"{rng.randint(0, 9)}-{rng.randint(0, 9)} {rng.randint(0, 7)}-{rng.randint(0, 7)}",
)


def clean(count: int, seed: int) -> list[str]:
    """Rows with one to three numbers that reach nobody, every kind in turn, glued to letters or not."""
    rng = random.Random(seed)
    kinds, scripts = cycle(_CLEAN), cycle(SCRIPTS.values())
    return [_clean(rng, script, [next(kinds) for _ in range(rng.randint(1, 3))]) for script in islice(scripts, count)]


def _clean(rng: random.Random, script: Script, kinds: list[Callable[[random.Random], str]]) -> str:
    parts = [
        f"{rng.choice(script.before)}{rng.choice(('', ' ', ': '))}{kind(rng)}{rng.choice(('', ' ', ', '))}"
        f"{rng.choice(script.after)}"
        for kind in kinds
    ]
    return " ".join(parts)

"""Detection of telephone numbers, by the plans of `phonenumbers` and by how they are written."""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from phonenumbers import (
    Leniency,
    NumberParseException,
    PhoneMetadata,
    PhoneNumberMatcher,
    is_valid_number,
    parse,
)

from palimpsest.records.grouped import Grouped, is_year

REGIONS: tuple[str, ...] = (
    *("US", "MX", "BR", "CL", "CO", "PE", "ES", "PT", "IT", "LI", "GR", "HU", "CZ", "PL"),
    *("RU", "KZ", "BY", "GE", "TJ", "TM", "UZ", "TR", "IN", "NP", "CN"),
    *("AO", "CG", "CI", "CM", "GN", "GQ", "GW", "MZ", "RW", "SN"),
)
"""Where national numbers are written without a leading 0 and have nine digits or more (ISO 3166; "US" is with Canada).

With a leading 0 a number is known for one whatever its region. One of eight digits is not told from a date or an
order number, so it is found where its region is named: "DK", "HK", "NO", "SG".
"""
_FEWEST = 9  # digits of a national number
_SIGNED = 10  # digits; with + these are a number, whatever the plans say
_DIALLED = re.compile(r"\+[ (]?([1-9](?:(?: ?\(|\)[ -]?|[ ./-])?\d){6,14})(?!\d)")


def dialled(text: str) -> bool:
    """Return whether a plain text has an international number with its +."""
    return any(_international(re.sub(r"\D", "", match[1])) for match in _DIALLED.finditer(text))


def _international(digits: str) -> bool:
    if len(digits) >= _SIGNED:
        return True
    with suppress(NumberParseException):
        return is_valid_number(parse(f"+{digits}"))
    return False


def telephone(number: Grouped, regions: Sequence[str]) -> bool:
    """Return whether a number in groups is a telephone number: with 00, a leading 0, or the groups of its region."""
    if _abroad(number):
        return True
    if number.day or number.turns > 1:
        return False
    return _trunk(number) or _north_american(number) or _national(number, regions)


def _abroad(number: Grouped) -> bool:
    """Return whether the number has 00 and a country code."""
    starts = number.groups[0].startswith("00") and re.match("00[1-9]", number.digits)
    return bool(starts) and 12 <= len(number.digits) <= 17


def _trunk(number: Grouped) -> bool:
    """Return whether it has a leading 0 and an area code; the groups after the 0 tell it from the 0 of a fraction."""
    groups = number.groups
    if number.turns:
        return False
    if groups[0] == "0" and "." not in number.joints[0]:
        groups = (groups[0] + groups[1], *groups[2:])
    shaped = len(groups) > 1 and 2 <= len(groups[0]) <= 5 and all(len(group) > 1 for group in groups)
    return shaped and re.match("0[1-9]", groups[0]) is not None and 9 <= len(number.digits) <= 12


def _north_american(number: Grouped) -> bool:
    """Return whether it has three groups with hyphens, dots or brackets, of any area code, not after letters."""
    if number.sizes[-3:] != (3, 3, 4) or number.groups[:-3] not in ((), ("1",)) or number.code:
        return False
    behind, last = number.joints[-2:]
    return number.groups[-3][0] in "23456789" and ((behind == last and last in "-.") or ")" in behind)


def _national(number: Grouped, regions: Sequence[str]) -> bool:
    """Return whether it is of a region's plan, grouped as there; no amount in round groups, no order of a year."""
    if number.ordinary or is_year(number.groups[0]) or all(group[-1] == "0" for group in number.groups):
        return False
    written, digits = " ".join(number.groups), number.digits
    return any(
        len(digits) >= _fewest(region) and _plan(region).fullmatch(digits) and _as_written(written, region)
        for region in regions
    )


@cache
def _fewest(region: str) -> int:
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


def _as_written(number: str, region: str) -> bool:
    """Return whether the matcher, given nothing else, takes all of it for one number in the groups of its region."""
    matcher = PhoneNumberMatcher(number, region, leniency=Leniency.STRICT_GROUPING)
    return any(match.raw_string == number for match in matcher)

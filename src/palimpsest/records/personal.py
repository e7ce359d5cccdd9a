"""Detection of numbers and addresses that reach, charge or name one person, in texts of any script.

Nothing depends on the letters beside a number. Chinese, Japanese and Thai put no space there, Korean and Turkish put a
suffix. So numbers are found in a text first, and then rules say what they are. The filter of synthetic rows, the
public texts that methods choose from, the release's gate and the rows that pages show all use this module.
"""

import re
from collections.abc import Sequence

from palimpsest.records.grouped import grouped, plain
from palimpsest.records.identity import account, card, identity, lettered, without_accounts
from palimpsest.records.record import Record
from palimpsest.records.structured import texts_of
from palimpsest.records.telephone import REGIONS, dialled, telephone

_ADDRESS = re.compile(
    # E-mail address; the top-level domain has letters, so that "2@1.50" passes.
    r"[\w+-]@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}"
    # URL with user info. An @ in the path is no user info.
    r"|://[^\s/?#@]+@[^\s/?#@]"
)
_LONG = re.compile(r"(?<!\d)(?<!\d[.,])\d{9,}")  # not the decimals of a fraction
# Seven digits; or the four of a person's number of India, or the first of an account that goes on in letters.
_DIGITS = re.compile(r"\d(?:\D*\d){6}|\d{4}[a-z]|[a-z]{2}\d\d[ -]?[a-z0-9]{4}")


def personal(record: Record, regions: Sequence[str] = REGIONS) -> bool:
    """Return whether a row's text, label or a string of its JSON `looks_personal`."""
    return any(looks_personal(text, regions) for text in texts_of(record))


def looks_personal(text: str, regions: Sequence[str] = REGIONS) -> bool:
    """Return whether a text seems to hold a way to reach, charge or name one person, whatever letters are beside it.

    That is: an e-mail address, a URL with user info, a telephone number, a card number (Luhn check), an IBAN (ISO 7064
    check), a person's number of some thirty states (by its form and check digits), or nine digits or more in a
    row. Years, prices, scores, dates and model numbers pass. So do local telephone numbers without an area code, and
    names.

    Args:
        text: of any script; full-width forms and digits of other scripts are read as ASCII.
        regions: the regions whose telephone numbers are recognised without a leading 0 (ISO 3166), see `REGIONS`.

    >>> [looks_personal(text) for text in ("電話は090-1234-5678です", "0532 123 45 67'yi ara", "Since 1998-2001")]
    [True, True, False]
    """
    read = plain(text)
    if "@" in read and _ADDRESS.search(read):
        return True
    return _DIGITS.search(read) is not None and _numbered(read, regions)


def _numbered(text: str, regions: Sequence[str]) -> bool:
    if _LONG.search(text) or dialled(text) or lettered(text) or account(text):
        return True
    numbers = grouped(without_accounts(text))
    return any(card(number) or identity(number) or telephone(number, regions) for number in numbers)

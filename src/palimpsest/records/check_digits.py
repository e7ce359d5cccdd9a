"""Check digits of numbers that lead to one person: a number without the right ones is none."""


def luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of a payment card (ISO/IEC 7812-1, annex B).

    >>> luhn("4111111111111111"), luhn("4111111111111112")
    (True, False)
    """
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(int(digit) for digit in digits[::-2])) % 10 == 0


def mod97(iban: str) -> bool:
    """Whether the digits behind the country code are the check digits of an IBAN (ISO 13616, ISO 7064 MOD 97-10).

    >>> mod97("gb82west12345698765432"), mod97("gb83west12345698765432")
    (True, False)
    """
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1

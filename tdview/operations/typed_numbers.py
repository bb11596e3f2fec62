"""This module knows how a person writes a number: "1e-3", "0x1f", "nan", "1+2j", "true".

It does not know how a number is stored.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tdview.errors import EditRefusedError, shown

__all__ = ["Real", "parse_bool", "parse_complex", "parse_real"]

Real = int | float | Fraction
"""An exact number. A float stands for NaN, an infinity or minus zero where no other type can."""

# A longer text is no number that somebody typed, and exact arithmetic on it would cost unbounded time.
_LONGEST = 1000
_PREFIXES = {"0x": 16, "0o": 8, "0b": 2}
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def parse_bool(text: str) -> bool:
    """True or False as typed: ``true``, ``false``, ``1``, ``0``, ``yes``, ``no``, ``on``, ``off`` in any case.

    Raises:
        EditRefusedError: it is another text.
    """
    word = _clean(text)
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise EditRefusedError(f"{shown(text)} is no truth value; expected true or false")


def parse_real(text: str) -> Real:
    """The exact real number that `text` writes: decimal, ``0x``, ``0o``, ``0b``, C hexadecimal float, nan, inf.

    Decimal text is not rounded to a Python float, so that it is rounded once, to the dtype.

    Raises:
        EditRefusedError: it is no number, or one beyond the range of every dtype.
    """
    word = _clean(text)
    try:
        return _real(word)
    except ValueError:
        raise EditRefusedError(f"{shown(text)} is no number") from None
    except OverflowError:
        raise EditRefusedError(f"{shown(text)} is beyond the range of every dtype") from None


def parse_complex(text: str) -> tuple[Real, Real]:
    """The exact real and imaginary part of ``1+2j``, ``-3i``, ``(1.5 - nanj)`` or a real number.

    Raises:
        EditRefusedError: it is no complex number.
    """
    word = _clean(text).replace(" ", "")
    if word.startswith("(") and word.endswith(")"):
        word = word[1:-1]
    try:
        if not word.endswith(("j", "i")) or word.endswith("0xi"):
            return _real(word), 0
        body = word[:-1]
        split = _imaginary_start(body)
        imaginary = body[split:]
        if imaginary in ("", "+", "-"):
            imaginary += "1"
        return (_real(body[:split]) if split else 0), _real(imaginary)
    except ValueError:
        raise EditRefusedError(f"{shown(text)} is no complex number") from None
    except OverflowError:
        raise EditRefusedError(f"{shown(text)} is beyond the range of every dtype") from None


def _clean(text: str) -> str:
    if len(text) > _LONGEST:
        raise EditRefusedError(f"{shown(text)} is longer than {_LONGEST} characters, so it is no number")
    return text.strip().replace("\N{MINUS SIGN}", "-").lower()


def _real(word: str) -> Real:
    sign, digits = (word[0], word[1:]) if word[:1] in ("+", "-") else ("", word)
    base = _PREFIXES.get(digits[:2])
    if base == 16 and ("p" in digits or "." in digits):
        return float.fromhex(word)
    if base is not None:
        if not digits[2:3].isalnum():
            raise ValueError(word)
        return int(sign + digits, base)
    approximation = float(word)
    if not math.isfinite(approximation):
        if digits not in ("nan", "inf", "infinity"):
            raise OverflowError(word)
        return approximation
    # Zero keeps its sign as a float only. An underflow to zero also ends here, so that the exponent below is small.
    return Fraction(word) if approximation else approximation


def _imaginary_start(body: str) -> int:
    """Where the imaginary part begins: at its sign, which does not follow an exponent's ``e``."""
    for position in range(len(body) - 1, 0, -1):
        if body[position] in "+-" and body[position - 1] != "e":
            return position
    return 0

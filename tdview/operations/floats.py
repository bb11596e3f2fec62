"""This module knows how a number becomes the bits of a floating point format, rounded once and to nearest.

It does not know dtypes by name, nor how a person types a number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

__all__ = ["FloatFormat", "FloatRangeError"]

Infinity = Literal["ieee", "none"]


class FloatRangeError(ValueError):
    """A number has no bits in a format; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatFormat:
    """A binary floating point format of at most 64 bits.

    Invariant: `decode` of `encode(x)` is the number of the format that is nearest to ``x``; of two that are
    equally near the one with an even last bit (with an even exponent step upwards where there is no fraction).

    Examples:
        >>> bfloat16 = FloatFormat(exponent_bits=8, fraction_bits=7)
        >>> hex(bfloat16.encode(1.5)), bfloat16.decode(0x3FC0)
        ('0x3fc0', 1.5)
    """

    exponent_bits: int
    fraction_bits: int
    bias: int | None = None
    """Exponent bias; None for the usual ``2**(exponent_bits - 1) - 1``."""
    infinity: Infinity = "ieee"
    """``"none"``: the highest exponent holds numbers, except for the one pattern `nan`."""
    nan: int | None = None
    """Bits of NaN where it is one pattern; None for the usual quiet NaN below the infinities."""
    signed: bool = True
    signed_zero: bool = True
    """False for the ``fnuz`` formats: minus zero is the pattern of NaN there."""
    subnormal: bool = True
    """False for a format of exponents alone, where all bits zero are the smallest power of two."""

    @property
    def bits(self) -> int:
        """Width of a number in bits."""
        return self.exponent_bits + self.fraction_bits + self.signed

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return self.decode(self._largest_bits)

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return (1 if self.subnormal else 0) - self._bias

    def encode(self, number: float | Fraction) -> int:
        """Bits of the number that is nearest to `number`.

        Args:
            number: exact value; a float for NaN, an infinity and minus zero.

        Raises:
            FloatRangeError: it is finite and rounds beyond `largest`, or is infinite, negative or zero in a
                format without such numbers.
        """
        if isinstance(number, float):
            if math.isnan(number):
                return self._nan_bits
            if math.isinf(number):
                return self._encode_infinity(number < 0)
            negative = math.copysign(1.0, number) < 0
        else:
            negative = number < 0
        if negative and not self.signed:
            raise FloatRangeError("is negative; the format has no sign")
        magnitude = self._encode_magnitude(abs(Fraction(number)))
        if negative and (magnitude or self.signed_zero):
            magnitude |= self._sign_bit
        return magnitude

    def decode(self, bits: int) -> float:
        """The number that `bits` stand for; exact, as every format here fits into a Python float."""
        negative = self.signed and bool(bits & self._sign_bit)
        magnitude = bits & (self._sign_bit - 1) if self.signed else bits
        if bits == self.nan or magnitude == self.nan:
            return math.nan
        sign = -1.0 if negative else 1.0
        fraction = magnitude & ((1 << self.fraction_bits) - 1)
        exponent = magnitude >> self.fraction_bits
        if self.infinity == "ieee" and exponent == (1 << self.exponent_bits) - 1:
            return math.nan if fraction else sign * math.inf
        if exponent or not self.subnormal:
            fraction |= 1 << self.fraction_bits
        step = max(exponent, 1 if self.subnormal else 0) - self._bias - self.fraction_bits
        return sign * math.ldexp(float(fraction), step)

    @property
    def _bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1 if self.bias is None else self.bias

    @property
    def _sign_bit(self) -> int:
        return 1 << (self.exponent_bits + self.fraction_bits)

    @property
    def _nan_bits(self) -> int:
        if self.nan is not None:
            return self.nan
        return ((1 << (self.exponent_bits + 1)) - 1) << (self.fraction_bits - 1)

    @property
    def _largest_bits(self) -> int:
        top = ((1 << self.exponent_bits) - 1) << self.fraction_bits
        if self.infinity == "ieee":
            return top - 1
        full = top | ((1 << self.fraction_bits) - 1)
        return full - 1 if self.nan == full else full

    def _encode_infinity(self, negative: bool) -> int:
        if self.infinity == "none":
            raise FloatRangeError("is infinite; the format has no infinity")
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits | (self._sign_bit if negative else 0)

    def _encode_magnitude(self, magnitude: Fraction) -> int:
        if not magnitude:
            if not self.subnormal:
                raise FloatRangeError("is zero; the format holds powers of two only")
            return 0
        exponent = max(_floor_log2(magnitude), self.smallest_exponent)
        step = exponent - self.fraction_bits
        scaled = magnitude / (Fraction(2) ** step)
        units = round(scaled) if self.fraction_bits else math.floor(scaled + Fraction(1, 2))
        if not self.subnormal and not units:
            units = 1  # below the smallest power of two: it is the nearest number
        # `units` carries the leading bit of a normal number; adding lets a carry run into the exponent.
        bits = units + ((exponent - self.smallest_exponent) << self.fraction_bits) - (0 if self.subnormal else 1)
        if bits > self._largest_bits:
            raise FloatRangeError(f"is too large; the largest finite number is {self.largest:g}")
        return bits


def _floor_log2(magnitude: Fraction) -> int:
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return guess if Fraction(2) ** guess <= magnitude else guess - 1

"""This module knows the dtypes that a file can name: one table.

It does not know torch or numpy; it only names their dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DTYPES", "Dtype", "DtypeKind", "dtype_of"]

DtypeKind = Literal["bool", "int", "uint", "float", "complex", "quantized", "packed"]


@dataclass(frozen=True, slots=True)
class Dtype:
    """One row of the table."""

    name: str
    """As in the file: ``"torch.bfloat16"``."""
    itemsize: int
    """Bytes of one element of the stored shape."""
    kind: DtypeKind
    numpy: str | None
    """The numpy dtype that holds the same bytes with the same meaning, little-endian; None if numpy has none."""
    exponent: int = 0
    """Exponent bits of a float that numpy lacks; 0 for all others."""
    mantissa: int = 0
    """Mantissa bits of a float that numpy lacks."""
    bias: int = 0
    """Exponent bias of a float that numpy lacks."""
    specials: Literal["ieee", "fn", "fnuz", "scale"] = "ieee"
    """Which bit patterns are no numbers: as IEEE 754; one NaN and no infinity ("fn"); NaN in place of the
    negative zero ("fnuz"); an exponent alone, all ones is NaN ("scale")."""
    loadable: bool = True
    """Whether tensordict itself can load a leaf of this dtype (it saves more than it loads)."""

    @property
    def short(self) -> str:
        """The name without ``"torch."``."""
        return self.name.removeprefix("torch.")


def _table() -> dict[str, Dtype]:
    rows = [
        Dtype("bool", 1, "bool", "|b1"),
        Dtype("uint8", 1, "uint", "|u1"),
        Dtype("int8", 1, "int", "|i1"),
        Dtype("int16", 2, "int", "<i2"),
        Dtype("int32", 4, "int", "<i4"),
        Dtype("int64", 8, "int", "<i8"),
        Dtype("uint16", 2, "uint", "<u2"),
        Dtype("uint32", 4, "uint", "<u4"),
        Dtype("uint64", 8, "uint", "<u8"),
        Dtype("float16", 2, "float", "<f2"),
        Dtype("float32", 4, "float", "<f4"),
        Dtype("float64", 8, "float", "<f8"),
        Dtype("bfloat16", 2, "float", None, 8, 7, 127),
        Dtype("complex32", 4, "complex", None),
        Dtype("complex64", 8, "complex", "<c8"),
        Dtype("complex128", 16, "complex", "<c16"),
        Dtype("float8_e4m3fn", 1, "float", None, 4, 3, 7, "fn", loadable=False),
        Dtype("float8_e4m3fnuz", 1, "float", None, 4, 3, 8, "fnuz", loadable=False),
        Dtype("float8_e5m2", 1, "float", None, 5, 2, 15, loadable=False),
        Dtype("float8_e5m2fnuz", 1, "float", None, 5, 2, 16, "fnuz", loadable=False),
        Dtype("float8_e8m0fnu", 1, "float", None, 8, 0, 127, "scale", loadable=False),
        # Two values in a byte; the stored shape counts bytes.
        Dtype("float4_e2m1fn_x2", 1, "packed", None, 2, 1, 1, "fn", loadable=False),
        Dtype("bits8", 1, "packed", None, loadable=False),
        Dtype("bits16", 2, "packed", None, loadable=False),
        Dtype("bits1x8", 1, "packed", None, loadable=False),
        Dtype("bits2x4", 1, "packed", None, loadable=False),
        Dtype("bits4x2", 1, "packed", None, loadable=False),
        Dtype("qint8", 1, "quantized", "|i1"),
        Dtype("qint32", 4, "quantized", "<i4"),
        Dtype("quint8", 1, "quantized", "|u1"),
        Dtype("quint4x2", 1, "quantized", "|u1"),
        Dtype("quint2x4", 1, "quantized", "|u1", loadable=False),
    ]
    rows += [Dtype(f"int{n}", 1, "int", "|i1", loadable=False) for n in range(1, 8)]
    rows += [Dtype(f"uint{n}", 1, "uint", "|u1", loadable=False) for n in range(1, 8)]
    return {
        f"torch.{row.name}": Dtype(
            f"torch.{row.name}", row.itemsize, row.kind, row.numpy, row.exponent, row.mantissa, row.bias,
            row.specials, row.loadable,
        )
        for row in rows
    }  # fmt: skip


DTYPES: dict[str, Dtype] = _table()
"""Every dtype by the name that a file gives it. Spec: "Leaves"."""


def dtype_of(name: object) -> Dtype | None:
    """The row of a dtype name, None if there is none (or it is no string).

    Examples:
        >>> dtype_of("torch.bfloat16").itemsize, dtype_of("torch.float7"), dtype_of(3)
        (2, None, None)
    """
    return DTYPES.get(name) if isinstance(name, str) else None

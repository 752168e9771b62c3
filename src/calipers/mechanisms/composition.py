"""Compositions of mechanisms: a short list of factors with multiplicities."""

from __future__ import annotations

from collections.abc import Sequence

from calipers.citations import implements
from calipers.domains import COUNT
from calipers.pld.composition.product import Product
from calipers.pld.core.source import TwoSidedPair


@implements("zhu2022:thm10")
def compose(
    *factors: TwoSidedPair | tuple[TwoSidedPair, int] | Sequence[TwoSidedPair | tuple[TwoSidedPair, int]],
) -> Product:
    """The adaptive composition of mechanisms, each given alone or as (mechanism, count)."""
    counted: list[tuple[TwoSidedPair, int]] = []
    for factor in factors:
        if isinstance(factor, tuple) and len(factor) == 2 and isinstance(factor[1], int):
            counted.append((factor[0], COUNT.check_int("count", factor[1])))
        elif isinstance(factor, Sequence):
            counted.extend(compose(*factor).factors)
        else:
            counted.append((factor, 1))
    return Product(counted)

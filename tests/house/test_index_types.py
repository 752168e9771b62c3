"""Index arrays are as wide as the platform's: `bincount`, `repeat` and `reduceat` refuse wider ones.

On a 32-bit platform (WebAssembly) NumPy's own indices (`arange`, `searchsorted`, `flatnonzero`) have 32 bits, and
integers of 64 bits are not cast to them by these three.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from calipers.bracket import Side
from calipers.pld.composition.convolve import LatticePlan, compose_lower, compose_upper
from calipers.pld.core.pmf import PrivacyLossPmf

SOURCE = Path(__file__).parents[2] / "src" / "calipers"
ROOMS = ("curves", "pld", "measure", "mechanisms", "numerics", "samplers")
INDEXED = {"bincount": 0, "repeat": 1, "reduceat": 1}
"""Which argument has to be an index."""


def refused(text: str) -> Iterator[str]:
    """Calls of a module that makes integers of 64 bits, whose index is not said to be one."""
    if "np.int64" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in INDEXED:
            place = INDEXED[node.func.attr]
            if len(node.args) > place and "np.intp" not in ast.unparse(node.args[place]):
                yield ast.unparse(node)


def test_the_rule_finds_what_it_is_about() -> None:
    """A wide index, and neither one that is converted nor one of a module without wide integers."""
    wide = "a = b.astype(np.int64)\n"
    assert list(refused(wide + "np.bincount(a)")) == ["np.bincount(a)"]
    assert list(refused(wide + "np.add.reduceat(x, a)")) == ["np.add.reduceat(x, a)"]
    assert list(refused(wide + "np.bincount(a.astype(np.intp))")) == []
    assert list(refused("np.bincount(np.arange(3))")) == []


def test_no_wide_integers_are_counted_or_repeated() -> None:
    """In all rooms that compute a bound."""
    files = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
    assert len(files) > 100
    found = {path.relative_to(SOURCE).as_posix(): list(refused(path.read_text("utf-8"))) for path in files}
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize("side", Side)
def test_a_composition_counts_with_narrow_indices(monkeypatch: pytest.MonkeyPatch, side: Side) -> None:
    """Lattice positions have 64 bits; where an index has 32, `bincount` is never given the positions themselves."""
    counted, asked = np.bincount, []

    def strict(index: np.ndarray, *args: object, **named: object) -> np.ndarray:
        np.can_cast(index.dtype, np.int32) or pytest.fail(f"an index of {index.dtype}")
        asked.append(len(index))
        return counted(index, *args, **named)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(np, "intp", np.int32)
    monkeypatch.setattr(np, "bincount", strict)
    ratio, q = np.array([-0.3, 0.0, 0.4]), np.array([0.3, 0.5, 0.2])
    law = PrivacyLossPmf(ratio, np.log(q) + ratio, np.log(q), side)
    plan = LatticePlan(0.05, 0.01, 2.0, -30.0)
    (compose_upper if side is Side.UPPER else compose_lower)([(law, 400)], plan)
    assert len(asked) > 2

"""What people call says what it takes, what it returns and what it raises."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import calipers


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of the package's face, and the methods of its classes."""
    for name in sorted(calipers.__all__):
        thing = getattr(calipers, name)
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing) and not issubclass(thing, BaseException):
            for method, value in vars(thing).items():
                value = getattr(value, "__func__", value)
                if inspect.isfunction(value) and not method.startswith("_"):
                    yield f"{name}.{method}", value


PUBLIC = dict(public())


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_names_every_argument_and_the_result(name: str) -> None:
    """Where nothing is asked the first line says what comes back."""
    signature, text = inspect.signature(PUBLIC[name]), inspect.getdoc(PUBLIC[name]) or ""
    asked = [one for one in signature.parameters if one not in ("self", "cls")]
    sections = dict(re.findall(r"^(Args|Returns|Raises):\n((?:    .*\n?|\n)+)", text, re.M))
    assert text
    assert [one for one in asked if not re.search(rf"^    {one}: ", sections.get("Args", ""), re.M)] == []
    assert not asked or signature.return_annotation == "None" or "Returns" in sections


def test_there_is_something_to_look_at() -> None:
    """Functions and methods of both kinds are found."""
    assert {"measure", "Run.from_dict", "Measurement.epsilon", "TradeoffCurve.delta"} <= set(PUBLIC)

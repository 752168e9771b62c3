"""Answers that an object gives again and computes once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

Own = TypeVar("Own")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def kept(method: Callable[Concatenate[Own, Asked], Answer]) -> Callable[Concatenate[Own, Asked], Answer]:
    """The method, whose answers live as long as the object they are about, and not longer."""
    place = f"{method.__qualname__} kept"

    @functools.wraps(method)
    def answered(self: Own, /, *args: Asked.args, **named: Asked.kwargs) -> Answer:
        answers: dict[object, Answer] = self.__dict__.setdefault(place, {})
        asked = (args, *named.items())
        if asked not in answers:
            answers[asked] = method(self, *args, **named)
        return answers[asked]

    return answered

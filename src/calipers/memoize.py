"""Answers that an object gives again and computes once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from calipers.errors import CertificationError, UnsupportedError

Own = TypeVar("Own")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
_RememberedRefusal = tuple[type[CertificationError] | type[UnsupportedError], str]


def memoize(method: Callable[Concatenate[Own, Asked], Answer]) -> Callable[Concatenate[Own, Asked], Answer]:
    """The method, whose answers live as long as the object they are about, and not longer.

    That there is none is an answer too, and may have taken as long: a refusal is kept in its words, without the frames
    that it came from.
    """
    place = method.__qualname__

    @functools.wraps(method)
    def answered(self: Own, /, *args: Asked.args, **named: Asked.kwargs) -> Answer:
        answers: dict[object, Answer]
        refusals: dict[object, _RememberedRefusal]
        answers, refusals = self.__dict__.setdefault("_kept", {}).setdefault(place, ({}, {}))
        asked = (args, *named.items())
        if asked in refusals:
            kind, words = refusals[asked]
            raise kind(words)
        if asked not in answers:
            try:
                answers[asked] = method(self, *args, **named)
            except (CertificationError, UnsupportedError) as error:
                kind = CertificationError if isinstance(error, CertificationError) else UnsupportedError
                refusals[asked] = kind, str(error)
                raise
        return answers[asked]

    return answered

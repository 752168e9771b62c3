"""Answers are computed once, and so are refusals."""

from __future__ import annotations

import pytest

from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.memoize import memoize


class Asked:
    """Counts how often it had to think."""

    def __init__(self) -> None:
        self.thoughts = 0

    @memoize
    def half(self, number: int) -> int:
        """Of even numbers."""
        self.thoughts += 1
        if number < 0:
            raise UnsupportedError(f"{number} is negative.")
        if number > 100:
            raise InputError(f"{number} is large.")
        if number % 2:
            raise CertificationError(f"{number} is odd.")
        return number // 2


def test_an_answer_is_computed_once_for_each_object() -> None:
    one, other = Asked(), Asked()
    assert [one.half(4), one.half(4), one.half(6), other.half(4)] == [2, 2, 3, 2]
    assert (one.thoughts, other.thoughts) == (2, 1)


@pytest.mark.parametrize(("number", "kind"), [(3, CertificationError), (-4, UnsupportedError)])
def test_a_refusal_is_kept_in_its_words_and_not_with_the_frames_it_came_from(
    number: int, kind: type[Exception]
) -> None:
    asked, seen = Asked(), []
    for _ in range(2):
        with pytest.raises(kind, match=f"^{number} is ") as caught:
            asked.half(number)
        seen.append(caught.value)
    assert asked.thoughts == 1
    assert seen[0] is not seen[1]
    assert asked.half(4) == 2


def test_what_is_no_refusal_of_a_number_is_not_kept() -> None:
    asked = Asked()
    for _ in range(2):
        with pytest.raises(InputError):
            asked.half(102)
    assert asked.thoughts == 2

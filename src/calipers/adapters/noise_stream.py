"""Whether the random numbers of the noise were used before, at the same place of the stream or shifted.

`torch.manual_seed` inside a loop sets the generator back. If as many random numbers are drawn before the noise as the
first time, the state is the same one again. If not (dropout draws as many as the batch has rows), the noise is that of
an earlier step, shifted: the state differs, and nearly all numbers are equal. So besides the state a few of the next
random words are remembered, chosen by their own value, so that a shifted stream chooses the same ones.
"""

from __future__ import annotations

from typing import Any

from calipers.adapters.opacus_library import generator_digest, torch_module

_WORDS = 4096
"""How far into the noise is looked, at most: shifts of fewer random numbers are noticed. 0.03 ms a step on one core."""
_REMEMBERED = 4
"""About how many words of a step are remembered. With its successor each has 50 bits: of 100,000 steps two agree by
accident with probability 1e-4."""


class NoiseStream:
    """The generator behind one optimizer's noise; `states` is the memory, which checkpoints carry."""

    def __init__(self, optimizer: Any, states: dict[str, None]) -> None:
        self._optimizer, self.states = optimizer, states
        self._beginnings: dict[str, int] = {}

    def _digest(self) -> str | None:
        return generator_digest(self._optimizer.generator, self._optimizer.params[0].device)

    def back_at_a_beginning(self, steps: int) -> bool:
        """Whether an earlier pass began in this state, with steps in between."""
        digest = self._digest()
        if digest is None:
            return False
        return self._beginnings.setdefault(digest, steps) < steps

    def seen_before(self) -> bool:
        """Whether the next noise was drawn before, wholly or shifted; it is remembered."""
        names = dict.fromkeys([self._digest() or "", *self._words()])
        names.pop("", None)
        found = not names.keys().isdisjoint(self.states)
        self.states.update(names)
        return found

    def _words(self) -> list[str]:
        """A few of the next random words, each with its successor; nothing is taken from the generator itself."""
        torch, generator = torch_module(), self._optimizer.generator
        if generator is None and self._optimizer.params[0].device.type == "cpu":
            generator = torch.default_generator
        if generator is None or generator.device.type != "cpu":
            return []
        # A normal number takes at least one word, so that these are words of this step's noise.
        count = min(_WORDS, sum(parameter.numel() for parameter in self._optimizer.params))
        copy = torch.Generator()
        copy.set_state(generator.get_state())
        words = torch.empty(count, dtype=torch.int32).random_(generator=copy).numpy()
        one_in = 1 << max(0, (count // _REMEMBERED).bit_length() - 1)
        chosen = (words[:-1] % one_in == 0).nonzero()[0]
        return [f"{words[place]:08x}{words[place + 1]:08x}" for place in chosen]

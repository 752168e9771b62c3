"""What an epoch shows at most that hides the record in one of M rounds.

With the record taking part with probability s (s < 1 where a loader drops what is left over), D_k is at most

    E[( (1 - s)(1 - k) + (s / M) (X_1 + ... + X_M) )+],

X_1 ... X_M independent copies of a term whose call is one of the closed forms below; r = 1/sigma is the shift of one
record.

- Balls-and-bins, zeroed out: X = Y - k, Y = exp(r z - r^2/2). The sum does not depend on k, which becomes the strike.
- Balls-and-bins, replaced: X = exp(r z - r^2/2) - k exp(-r z - r^2/2).
- Shuffled batches of fixed size that leave some records out: the call of X is that of exp(2 r z - 2 r^2) - k exp(r z
  - r^2/2) at strikes c >= 0, that of 1 - k exp(r z - r^2/2) at c <= 0. Replaced: exp(2 r z - 2 r^2) - k, and 1 - k
  exp(2 r z - 2 r^2).
- Shuffled batches seen by one who knows nothing of the other records: as balls-and-bins.

The proofs are in the documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from flint import arb

from calipers_verify.calls import ball, is_positive, tail
from calipers_verify.reading import Effort, Refused
from calipers_verify.sums import Calls, Plan, connected, summed

Call = Callable[[arb], arb]


def lognormal(r: arb) -> Call:
    """c -> E[(Y - c)+], Y = exp(r z - r^2/2)."""

    def call(c: arb) -> arb:
        if not is_positive(c):
            return 1 - c
        z = c.log() / r + r / 2
        return tail(z - r) - c * tail(z)

    return call


def opposite(r: arb, k: arb) -> Call:
    """c -> E[(exp(r z - r^2/2) - k exp(-r z - r^2/2) - c)+]."""
    size = (-r * r / 2).exp()

    def call(c: arb) -> arb:
        root = (c * c + 4 * k * size * size).sqrt()
        z = ((c + root) / (2 * size)).log() / r
        return tail(z - r) - k * tail(z + r) - c * tail(z)

    return call


def displaced(r: arb, k: arb) -> Call:
    """c -> E[(A - k B - c)+] for c >= 0, E[(1 - k B - c)+] for c <= 0; A = exp(2 r z - 2 r^2), B = exp(r z - r^2/2)."""
    large, small = (-2 * r * r).exp(), k * (-r * r / 2).exp()

    def call(c: arb) -> arb:
        if not is_positive(c):
            z = ((1 - c) / k).log() / r + r / 2
            return (1 - c) * tail(-z) - k * tail(r - z)
        y = (small + (small * small + 4 * large * c).sqrt()) / (2 * large)
        z = y.log() / r
        return tail(z - 2 * r) - k * tail(z - r) - c * tail(z)

    return call


def displaced_replaced(r: arb, k: arb) -> Call:
    """c -> E[(A - k - c)+] for c >= 0, E[(1 - k A - c)+] for c <= 0, A = exp(2 r z - 2 r^2)."""
    once = lognormal(2 * r)

    def call(c: arb) -> arb:
        if is_positive(c):
            return once(k + c)
        z = ((1 - c) / k).log() / (2 * r) + r
        return (1 - c) * tail(-z) - k * tail(2 * r - z)

    return call


class Epoch:
    """Upper bounds of D_k for one kind of epoch; sums are kept, since several nodes may ask for the same one."""

    def __init__(
        self, term: Callable[[arb, arb], Call] | None, r: arb, share: Fraction, rounds: int, effort: Effort
    ) -> None:
        self.term, self.r, self.share, self.rounds, self.effort = term, r, share, rounds, effort
        self.known: dict[Any, Calls] = {}

    def present(self, x: Fraction, plan: Plan) -> arb:
        """At least D_k(P||Q) at k = e^x."""
        k = ball(x).exp()
        strike = ball((1 - self.share) / self.share * self.rounds) * (k - 1)
        if self.term is None:
            strike += k * self.rounds
        return ball(self.share / self.rounds) * self._sum(x, plan)(strike)

    def absent(self, x: Fraction, plan: Plan) -> arb:
        """At least D_k(Q||P) = 1 - k + k D_(1/k)(P||Q) at k = e^x."""
        k = ball(x).exp()
        return 1 - k + k * self.present(-x, plan)

    def _sum(self, x: Fraction, plan: Plan) -> Calls:
        key = (None if self.term is None else x, plan)
        if key not in self.known:
            if len(self.known) > 2000:
                raise Refused("it asks for too many sums")
            call = lognormal(self.r) if self.term is None else self.term(self.r, ball(x).exp())
            found = summed(connected(call, plan, self.effort), self.rounds, plan, self.effort)
            self.known[key] = Calls(found, plan.unit)
        return self.known[key]

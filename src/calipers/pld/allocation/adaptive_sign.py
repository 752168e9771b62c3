"""The attack that changes sides: a better lower bound of shuffled batches than any fixed dataset gives.

Everybody else pulls by -u in every step of an epoch of T batches. With x_t = (sum of batch t along u + B)/sigma, where
sums carry noise of deviation sigma, a batch without the record shows pure noise. The adversary chooses the record's
gradient before every step:

- it *opposes* the others (u): its batch has mean 2/sigma, and 1/sigma once it is zeroed out;
- it *agrees* with them (-u): its batch has mean 0 and shows nothing, but once zeroed out the record is missed: 1/sigma.

With A_t, B_t the likelihood ratios of x_t with the record and without, the epoch has densities mean(A_t) and mean(B_t)
against noise, whatever was played when, so at k = e^eps the divergence is E[(sum_t A_t - k B_t)+]/T: an option on a sum
whose mean nobody can change. While the sum is negative, opposing is better, because it may bring one large A_t; once it
is positive, agreeing is better, because then only B_t is uncertain, and losses beyond the sum are not the attacker's.
Conjecture 3.2 of Chua et al. (2024) holds that opposing throughout is the worst case; for adaptive gradients it is not.
Replaced records: opposing is u against -u, agreeing is -u against u.

An `AdaptiveSignAttack` is one such policy (`calipers.pld.allocation.adaptive_sign_rounds`), made for one epsilon:
`tuned`. It is a fixed pair of distributions, so its tests prove an optimistic PLD
(`calipers.pld.allocation.pmf_of_tests`), whose powers are attacks on several epochs that follow the same policy in
each. The maximum over policies may be taken of final numbers only: policies are different pairs, and a PLD made of
tests of different pairs would be nobody's attack on two epochs.

A record that is in the remainder (participation r < 1) shows noise under both hypotheses, as in
`calipers.pld.allocation.shuffle_attack`; the sum then has to pass T (1 - r)(k - 1)/r, and all marks move by that much.

The reversed direction (zeroed out against present) has never been seen to leak more; policies are made for the
forward one, and reversed tests only come along with their PLDs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from calipers.citations import implements
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.numerics.normal import gaussian_delta
from calipers.pld.allocation.adaptive_sign_rounds import RoundStrategy, blocks, ended, looks, played
from calipers.pld.allocation.average import AllocatedEpoch, shared_depth
from calipers.pld.allocation.average_tests import EventFamily, tail_families
from calipers.pld.allocation.pmf_of_tests import pmf_of_tests
from calipers.pld.composition.one_sided import AttackProduct
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair

_BLOCKS, _MOST_BLOCKS = 42.0, 60.0
"""Between these, 20 and 1.5 times the root of the rounds: where the noise is large, each look counts."""
_RESOLUTION, _SHARE = 0.04, 1.2
"""Resolution of the multi-resolution grid; for one epoch no more than this divided by the number of blocks."""
_MARK_DIGITS = 6
"""Digits of the marks and the threshold of a policy: whoever replays the attack reads them."""
_FAR, _FAR_OF_PMFS = 4.0, 40.0
"""Scores are cut off at this multiple of T k: beyond it a single round decides the test, at all k that matter."""
_LOWEST_LOG_TAIL = -560.0
"""The log of the least probability that is looked at: deeper, products of probabilities leave the doubles."""
_AHEAD = 1.2
"""With several epochs a policy is made for this multiple of an epoch's share of epsilon: the last jumps count most."""


@dataclass(frozen=True)
class Policy:
    """Blocks of rounds; the record agrees in block j > 0 if the running sum is above `marks[j - 1]` when it begins.

    At the end the sum is compared with `threshold`; one that was below a floor hardly ever passes it.
    """

    blocks: tuple[int, ...]
    marks: tuple[float, ...]
    floors: tuple[float, ...]
    threshold: float


@implements("calipers:switching")
@dataclass(frozen=True)
class AdaptiveSignAttack(AllocatedEpoch, AttainedPair):
    """One policy against one epoch of T = `rounds` shuffled batches, made for epsilon = `tuned` >= 0.

    `participation`: the share of the records that an epoch keeps. `substituted`: the record is replaced by another one
    instead of being zeroed out.
    """

    tuned: float = 0.0
    substituted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tuned", NON_NEGATIVE.check("tuned", self.tuned))

    @property
    def symmetric(self) -> bool:
        """A policy has a direction."""
        return False

    @property
    def strategies(self) -> tuple[RoundStrategy, RoundStrategy]:
        """Opposing and agreeing."""
        one, two = 1.0 / self.sigma, 2.0 / self.sigma
        return (
            (RoundStrategy(two, 0.0), RoundStrategy(0.0, two))
            if self.substituted
            else (RoundStrategy(two, one), RoundStrategy(0.0, one))
        )

    @property
    def policy(self) -> Policy:
        """What is played."""
        return _policy(self)

    def promising(self, epochs: int = 1) -> bool:
        """Whether such attacks have shown more than opposing throughout, by a share of 1e-4 of epsilon or more."""
        if self.rounds < 2:
            return False
        if self.substituted:
            return self.sigma >= 0.3 and self.rounds <= (30_000 if epochs == 1 else 3_000)
        if epochs == 1:
            return self.sigma >= 1.0 and self.rounds <= 1_000
        return self.sigma >= 1.5 and self.rounds <= (150 if epochs <= 4 else 30)

    def made_for(self, epsilon: float, epochs: int = 1) -> AdaptiveSignAttack:
        """The policy for `epochs` epochs whose score is to pass epsilon."""
        return replace(self, tuned=epsilon if epochs == 1 else _AHEAD * epsilon / epochs)

    def families(self, log_tail: float, far: float = _FAR) -> tuple[EventFamily, EventFamily]:
        """Tests on the final sum, forward and reversed."""
        return _measured(self, max(log_tail, _LOWEST_LOG_TAIL), far)

    def delta(self, epsilon: float, epochs: int = 1) -> tuple[float, bool]:
        """What this policy shows at epsilon (docs/theory/shuffling.md, section 10).

        Args:
            epsilon: At least 0.
            epochs: In each of which the policy is played.

        Returns:
            (delta, reversed) with delta at most the true divergence at epsilon, and whether the null is "present".
        """
        if epochs > 1:
            return AttackProduct([(self, epochs)]).delta(epsilon)[:2]
        log_tail = -40.0
        found = self.families(log_tail)[0].best(epsilon)[0]
        if found < math.exp(0.5 * log_tail):
            # Too little is left of what was kept; one more look that reaches deeper than any Gaussian release.
            release = float(gaussian_delta(self.strategies[0].present, epsilon))
            log_tail = math.log(max(release, 1e-280)) - math.log(self.rounds) - 40.0
            found = max(found, self.families(log_tail)[0].best(epsilon)[0])
        return found, False

    def epsilon(self, delta: float, epochs: int = 1) -> tuple[float, bool]:
        """What this policy shows at delta; as `delta`.

        Args:
            delta: In (0, 1).
            epochs: In each of which the policy is played.

        Returns:
            (epsilon, reversed) with epsilon at most the true one at delta.
        """
        if epochs > 1:
            return AttackProduct([(self, epochs)]).epsilon(delta)[:2]
        return self.families(math.log(OPEN_UNIT.check("delta", delta)) - 10.0)[0].epsilon(delta)[0], False

    def lower(self, resolution: float = _RESOLUTION, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The optimistic PLD of this policy's tests; `Side.UPPER` raises `UnsupportedError`. The resolution is its
        own.
        """
        del resolution
        depth = shared_depth(log_tail)
        forward, backward = self.families(depth, _FAR_OF_PMFS)
        return pmf_of_tests([forward], [backward], depth)


@lru_cache(maxsize=256)
def _policy(attack: AdaptiveSignAttack) -> Policy:
    k, r, rounds = math.exp(attack.tuned), attack.participation, attack.rounds
    sizes = blocks(rounds, min(max(_BLOCKS, 20.0 + 1.5 * math.sqrt(rounds)), _MOST_BLOCKS))
    threshold = float(f"{rounds * (1.0 - r) * math.expm1(attack.tuned) / r:.{_MARK_DIGITS}g}")
    release = float(gaussian_delta(attack.strategies[0].present, attack.tuned))
    log_tail = max(math.log(max(release, 1e-280)) - math.log(rounds) - 18.0, _LOWEST_LOG_TAIL)
    found = looks(attack.strategies, k, sizes, -threshold, log_tail)
    # As printed, so that what is printed was measured.
    marks = tuple(float(f"{threshold + mark:.{_MARK_DIGITS}g}") for mark, _ in found)
    return Policy(tuple(sizes), marks, tuple(threshold + floor for _, floor in found), threshold)


@lru_cache(maxsize=16)
def _measured(attack: AdaptiveSignAttack, log_tail: float, far: float) -> tuple[EventFamily, EventFamily]:
    policy, r = attack.policy, attack.participation
    resolution = _RESOLUTION if far != _FAR else min(_RESOLUTION, _SHARE / len(policy.blocks))
    strategies = played(
        attack.strategies, math.exp(attack.tuned), attack.rounds, max(policy.blocks), far, resolution, log_tail
    )
    # Other epochs may make up for what is hopeless in one: for PLDs all sums are followed.
    floors = policy.floors if far == _FAR else [-math.inf] * len(policy.marks)
    total = ended(*strategies, policy.blocks, zip(policy.marks, floors, strict=True))
    values, (nothing, present, absent) = total.flat()
    # Erasure (see `calipers.pld.allocation.average`): one constant for both hypotheses, then a relative error of 2
    # drift.
    kept = math.exp(-total.error)
    p, q = (kept * (r * row + (1.0 - r) * nothing) for row in (present, absent))
    return tail_families(values, p, q, 2.02 * total.drift + 1e-15)

"""Lines that are broken on purpose, and the tests that must notice.

    python tests/mutations.py --log found.jsonl [--only N1 L5 ...] [--seconds 600]

Run it in a copy of the repository: it edits files under src, one at a time, and puts each back. One line of JSON per
mutation: killed (a test failed), survived, timeout, or not applied (the line has changed, and the table must follow).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutation(NamedTuple):
    """One place in one file, what it becomes, and where that should be noticed."""

    key: str
    words: str
    file: str
    old: str
    new: str
    tests: str


MUTATIONS = [
    Mutation(
        "N1",
        "share of error on FNR",
        "auditing/bounds.py",
        "self.error * (1.0 - share)))",
        "self.error))",
        "tests/auditing/test_audit_bounds.py",
    ),
    Mutation(
        "N2",
        "min->max in judge",
        "auditing/verdict.py",
        "allowed = [min(profile.forward",
        "allowed = [max(profile.forward",
        "tests/auditing/test_audit_verdict.py -k asymmetric",
    ),
    Mutation(
        "N3",
        "sign of reversed threshold",
        "measure/composed.py",
        "{0.0 - threshold:.10g}",
        "{threshold:.10g}",
        "tests/measure/test_attack_sentences.py",
    ),
    Mutation(
        "N4",
        "P-mass lost in average._upper",
        "laws/allocated/average.py",
        "p_inf=min(1.0, found.lost_p)",
        "p_inf=0.0",
        "tests/laws/test_average.py -k shallow",
    ),
    Mutation(
        "N5",
        "lost moment in replaced",
        "laws/allocated/hidden_sum.py",
        " + total.left_out(ladder.lost_moment)",
        "",
        "tests/laws/test_replaced_pair.py -k shallow",
    ),
    Mutation(
        "L1",
        "Q-mass above the last cell",
        "laws/core/pair.py",
        "    log_q[-1] = np.logaddexp(log_q[-1], part.log_q_above(float(ends[-1])))\n",
        "",
        "tests/laws/test_pair_laws.py",
    ),
    Mutation(
        "L2",
        "P-mass above the last cell",
        "laws/core/pair.py",
        "p_inf=math.exp(part.log_p_above(float(ends[-1])))",
        "p_inf=0.0",
        "tests/laws/test_pair_laws.py",
    ),
    Mutation(
        "L3",
        "Q-mass below the first cell",
        "laws/core/pair.py",
        "q_zero=math.exp(part.log_q_below(float(ends[0])))",
        "q_zero=0.0",
        "tests/laws/test_pair_laws.py",
    ),
    Mutation(
        "L4",
        "pair's own mass at infinity",
        "laws/core/pair.py",
        "p_inf=min(1.0, self.p_inf + ",
        "p_inf=min(1.0, ",
        "tests/laws/test_pair_laws.py tests/mechanisms/test_mechanisms.py",
    ),
    Mutation(
        "L5",
        "reversed law swaps masses",
        "laws/core/law.py",
        "            p_inf=self.q_zero,\n            q_zero=self.p_inf,",
        "            p_inf=self.p_inf,\n            q_zero=self.q_zero,",
        "tests/laws/test_law_algebra.py",
    ),
    Mutation(
        "L6",
        "moment bound exponent",
        "laws/composed/direction.py",
        "moment - (saddle.tilt - 1.0) * epsilon",
        "moment - saddle.tilt * epsilon",
        "tests/laws/test_product_finite.py",
    ),
    Mutation(
        "L7",
        "end of the ratios without its shift",
        "laws/composed/direction.py",
        "return far + charges.shift + 1e-12 * abs(far)",
        "return 0.9 * far",
        "tests/laws/test_product_finite.py",
    ),
    Mutation(
        "L8",
        "certain leak counts half the steps",
        "laws/composed/product.py",
        "kept = math.fsum(count * math.log1p",
        "kept = math.fsum(count / 2 * math.log1p",
        "tests/laws/test_product_finite.py",
    ),
    Mutation(
        "L9",
        "upper jaw of the smaller direction",
        "laws/composed/product.py",
        "Jaws(lead.lower, max(first.upper, second.upper)",
        "Jaws(lead.lower, min(first.upper, second.upper)",
        "tests/laws/test_product_finite.py tests/laws/test_product.py",
    ),
    Mutation(
        "L10",
        "tighter takes the larger upper",
        "laws/composed/product.py",
        "Jaws(lead.lower, min(first.upper, second.upper)",
        "Jaws(lead.lower, max(first.upper, second.upper)",
        "tests/laws/test_product_finite.py tests/laws/test_product.py",
    ),
    Mutation(
        "L11",
        "tilt of the other order not mirrored",
        "laws/composed/direction.py",
        "not reverse else 1.0 - tilt",
        "not reverse else tilt",
        "tests/laws/test_product_finite.py tests/laws/test_product.py",
    ),
    Mutation(
        "L12",
        "Renyi: moments beyond the cells",
        "laws/core/pair.py",
        "beyond.append(order * abs(end) + growth(order * part.slope, low if reverse else high))",
        "beyond.append(-1e4)",
        "tests/laws/test_renyi_of_laws.py",
    ),
    Mutation(
        "L13",
        "Renyi: Q-mass at zero",
        "laws/composed/renyi.py",
        " + (order - 1.0) * law.q_zero",
        "",
        "tests/laws/test_renyi_of_laws.py",
    ),
    Mutation(
        "L14",
        "Renyi: tangent missing mass at infinity",
        "laws/composed/renyi.py",
        "pieces.append(math.log(order) + (order - 1.0) * cut + math.log(law.p_inf))",
        "pass",
        "tests/laws/test_renyi_of_laws.py",
    ),
    Mutation(
        "L15",
        "shifts beyond the last not charged",
        "laws/core/drawn_shift.py",
        "p_inf=min(1.0, law.p_inf + self.beyond)",
        "p_inf=law.p_inf",
        "tests/laws/test_drawn_shift.py",
    ),
    Mutation(
        "L16",
        "known moment of the wrong order",
        "laws/divided/pairs.py",
        "return self.told.log_moment(1.0 - order if reverse else order)",
        "return self.told.log_moment(order)",
        "tests/laws/test_renyi_of_laws.py -k known_moment",
    ),
    Mutation(
        "L17",
        "groups of rounds: longer ones forgotten",
        "laws/allocated/several_rounds.py",
        "(kind(sigma, size), chosen - longer), (kind(sigma, size + 1), longer)",
        "(kind(sigma, size + 1), chosen)",
        "tests/laws/test_several_rounds.py",
    ),
    Mutation(
        "L18",
        "curve's P-mass where Q vanishes",
        "laws/core/profile_law.py",
        "p_inf=min(1.0, p_inf + float(p[q <= 0].sum()))",
        "p_inf=0.0",
        "tests/laws/test_profile_law.py",
    ),
    Mutation(
        "L19",
        "infinite mass of a product",
        "laws/composed/tails.py",
        "infinite_mass(factors) * (1.0 + 1e-12)",
        "0.0",
        "tests/laws/test_tails.py tests/laws/test_product_finite.py",
    ),
    Mutation(
        "E1",
        "equal sources overwritten, not added",
        "measure/evaluation.py",
        "counts[source] = counts.get(source, 0) + count",
        "counts[source] = count",
        "tests/measure/test_evaluation.py",
    ),
    Mutation(
        "E2",
        "only the first of competing proofs",
        "measure/evaluation.py",
        "[choices[min(place, len(choices) - 1)] for choices in phases]",
        "[choices[0] for choices in phases]",
        "tests/measure/test_evaluation.py",
    ),
    Mutation(
        "E3",
        "only the first of competing attacks",
        "measure/evaluation.py",
        "greatest([_shown(one, replaced) for one in tried])",
        "greatest([_shown(attacks, replaced)])",
        "tests/measure/test_evaluation.py",
    ),
    Mutation(
        "E4",
        "the smallest over neighbors",
        "measure/choice.py",
        "return max(found, key",
        "return min(found, key",
        "tests/measure/test_evaluation.py",
    ),
    Mutation(
        "E5",
        "the largest of competing proofs",
        "measure/choice.py",
        "return min(found, key",
        "return max(found, key",
        "tests/measure/test_evaluation.py",
    ),
    Mutation(
        "E6",
        "one link of the chain missing",
        "measure/grouped.py",
        "for _ in range(records - 1):",
        "for _ in range(records - 2):",
        "tests/measure/test_measure_units_crowded.py tests/measure/test_measure_more_samplers.py",
    ),
    Mutation(
        "E7",
        "closed form rounded the flattering way",
        "measure/closed.py",
        "self._up * 4.0 * GAUSSIAN_RELATIVE_ERROR",
        "-self._up * 4.0 * GAUSSIAN_RELATIVE_ERROR",
        "tests/measure/test_measure_brackets.py",
    ),
    Mutation(
        "E8",
        "count's noise halved the wrong way",
        "measure/beside.py",
        "(1.0 if empty else 2.0)",
        "(2.0 if empty else 1.0)",
        "tests/measure/test_measure_beside.py",
    ),
    Mutation(
        "E9",
        "delta not shared by the trials",
        "measure/selection.py",
        "self.one.epsilon(delta / self.trials.mean",
        "self.one.epsilon(delta",
        "tests/measure/test_measure_selection.py",
    ),
    Mutation(
        "E10",
        "shortest columns of any group",
        "measure/correlated.py",
        "padded.max(axis=0)",
        "padded.min(axis=0)",
        "tests/measure/test_measure_correlated.py",
    ),
    Mutation(
        "E11",
        "Gaussian phases added, not squared",
        "measure/closed.py",
        "count * shift * shift for shift, count in shifts",
        "count * shift for shift, count in shifts",
        "tests/measure/test_measure_brackets.py tests/measure/test_measure_samplers.py",
    ),
    Mutation(
        "A1",
        "share of error on FPR",
        "auditing/bounds.py",
        "self.error * share))",
        "self.error))",
        "tests/auditing/test_audit_bounds.py",
    ),
    Mutation(
        "A2",
        "consistent without a margin",
        "auditing/verdict.py",
        "elif excluded <= violation:",
        "elif excluded <= 2.0 * violation:",
        "tests/auditing/test_audit_verdict.py",
    ),
    Mutation(
        "A3",
        "exact delta ignores the odds",
        "auditing/exact.py",
        "lambda rate: odds * (1.0 + _ROUNDOFF) * rate + delta)",
        "lambda rate: (1.0 + _ROUNDOFF) * rate + delta)",
        "tests/auditing/test_audit_exact.py",
    ),
    Mutation(
        "A4",
        "counts of the other order",
        "auditing/bounds.py",
        "        if not forward:\n            sides = (",
        "        if forward:\n            sides = (",
        "tests/auditing/test_audit_bounds.py tests/auditing/test_audit_verdict.py",
    ),
    Mutation(
        "A5",
        "falsified when equal or smaller",
        "auditing/verdict.py",
        "if lower > claimed:",
        "if lower > 0.5 * claimed:",
        "tests/auditing/test_audit_verdict.py",
    ),
]


def outcome(mutation: Mutation, seconds: float) -> str:
    """What the tests say of the broken line."""
    path = ROOT / "src" / "calipers" / mutation.file
    whole = path.read_text("utf-8")
    if whole.count(mutation.old) != 1:
        return "not applied"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        path.write_text(whole, encoding="utf-8")
    meaning = {0: "survived", 1: "killed", 5: "no test was chosen"}
    return meaning.get(done.returncode, f"exit {done.returncode}")


def main() -> None:
    """Break, test, restore, write down."""
    parser = argparse.ArgumentParser(description="Break lines on purpose and see which tests notice.")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    for mutation in MUTATIONS:
        if asked.only and mutation.key not in asked.only:
            continue
        row = {"key": mutation.key, "what": mutation.words, "outcome": outcome(mutation, asked.seconds)}
        with asked.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

"""What `calipers audit` is asked to attack, how it scores, and which claim it tests: words into objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calipers.errors import InputError, UnsupportedError
from calipers.phases import comparable
from calipers.run import Run

if TYPE_CHECKING:
    from calipers.auditing.distinguishers import Distinguisher
    from calipers.auditing.targets import Target
    from calipers.auditing.verdict import Claimed

BUILT_IN, JAX_PRIVACY = "builtin", "jax-privacy"
OPACUS = {"opacus": "mean", "opacus:sum": "sum"}
"""Names of the installed Opacus as a target, and the loss_reduction they stand for."""

# Which targets understand which option; all others refuse it.
_UNDERSTOOD = {
    "other_gradients": (BUILT_IN, JAX_PRIVACY),
    "vectors": (BUILT_IN, JAX_PRIVACY),
    "device": (BUILT_IN, *OPACUS),
    "grad_sample_mode": tuple(OPACUS),
}


def chosen_run(name: str, run: Run | None) -> Run | None:
    """The run that the target plays: the one described, or the target's own."""
    if name in OPACUS:
        return _opacus_run(run, OPACUS[name])
    if name == JAX_PRIVACY and run is None:
        from calipers.adapters.jax_privacy_target import DEFAULT_RUN

        return DEFAULT_RUN
    return run


def _opacus_run(run: Run | None, loss_reduction: str) -> Run:
    """What the Opacus target executes: four records with the differing one, q = 1/2, one step."""
    if run is not None:
        raise InputError(
            "The Opacus target brings its own run (4 records, q = 1/2, one step); leave out the run's options."
        )
    return Run(
        dataset_size=4,
        sample_rate=0.5,
        steps=1,
        noise_multiplier=10.0,
        normalization="none" if loss_reduction == "sum" else "floor",
        dimension=26_010,
    )


def chosen_target(name: str, run: Run | None, values: dict[str, Any]) -> Target:
    """The built-in target of the run, an installed library, or the function at module:function."""
    for option, understood in _UNDERSTOOD.items():
        if values[option] not in (None, False) and name not in understood:
            about = " and ".join("the built-in target" if word == BUILT_IN else word for word in understood)
            raise InputError(f"--{option.replace('_', '-')} is about {about}; leave it out with {name}.")
    if name in OPACUS:
        from calipers.adapters.opacus_target import OpacusTarget

        mode = values["grad_sample_mode"] or "hooks"
        return OpacusTarget(loss_reduction=OPACUS[name], grad_sample_mode=mode, device=values["device"] or "cpu")
    if name in (BUILT_IN, JAX_PRIVACY):
        return _target_of_run(name, run, values)
    from calipers.auditing.loading import LoadedTarget

    return LoadedTarget(name)


def _target_of_run(name: str, run: Run | None, values: dict[str, Any]) -> Target:
    """The built-in target or JAX-Privacy, as the run says."""
    if run is None:
        raise InputError("builtin needs a run; describe it with --dataset-size, --sample-rate, --steps and so on.")
    gradient = None if values["other_gradients"] is None else int(values["other_gradients"])
    vectors = values["vectors"] or values["distinguisher"] == "normality"
    if name == JAX_PRIVACY:
        from calipers.adapters.jax_privacy_target import JaxPrivacyTarget

        return JaxPrivacyTarget.of_run(run, gradient=gradient, vectors=vectors)
    from calipers.auditing.builtin import NoisySums

    sums = NoisySums.of_run(run, gradient=gradient, vectors=vectors)
    if values["device"] in (None, "cpu") or values["distinguisher"] == "normality":
        return sums
    from calipers.adapters.torch_sums import TorchSums

    return TorchSums(sums, values["device"])


def chosen_distinguisher(target: Target, values: dict[str, Any]) -> Distinguisher:
    """The score function that was named, or the distinguisher of that name."""
    from calipers.auditing.choosing import distinguisher_for, pilot_for

    if values["score"] is None:
        pilot = pilot_for(values["trials"]) if values["pilot"] is None else values["pilot"]
        return distinguisher_for(
            target, values["distinguisher"], seed=values["seed"], pilot=pilot, time_limit=values["time_limit"]
        )
    if values["distinguisher"] != "auto":
        raise InputError("--score and --distinguisher contradict each other: both say how to score; give one of them.")
    from calipers.auditing.distinguishers import ScoreFunction
    from calipers.auditing.loading import load_function

    return ScoreFunction(load_function(values["score"]), label=values["score"])


def claims(run: Run | None, given: tuple[float, float] | None) -> tuple[Claimed | None, Claimed | None]:
    """(claim, certified upper bound): the pair that was given, or what accounting says of the run."""
    if run is None:
        return given, None
    from calipers.measure import measure

    try:
        measurement = measure(run)
    except UnsupportedError:
        # No proof covers what was executed; mainstream accounting would not have asked.
        plain = Run(sample_rate=run.rate, steps=run.total_steps, noise_multiplier=run.noise_multiplier)
        return given if given is not None or not comparable((run,)) else measure(plain).claim, None
    # Standard accounting is about other neighbors than a replaced record, or a unit of several.
    own = measurement.claim if comparable((run,)) else None
    return given if given is not None else own, measurement


def claimed_pair(text: str | None) -> tuple[float, float] | None:
    """The (epsilon, delta) of --claim; None if there is none."""
    if text is None:
        return None
    try:
        if not text.isascii():  # Python reads the digits of every script
            raise ValueError
        epsilon, delta = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"Expected --claim EPSILON,DELTA (such as 1,1e-5), got {text!r}.") from error
    return epsilon, delta

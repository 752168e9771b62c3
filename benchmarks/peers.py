"""One function per accountant: Poisson-subsampled Gaussian, add/remove one record, epsilon at delta.

Every call builds its objects anew, so nothing is carried from one call to the next. Libraries are imported when a peer
is loaded, outside the timed part. What each library says about its own number is kept beside the number, in its terms:
an "upper bound" of a peer is the peer's claim, not something this benchmark vouches for.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Setting:
    """What was executed: sample rate, noise multiplier, steps."""

    sample_rate: float
    noise_multiplier: float
    steps: int

    def __str__(self) -> str:
        return f"q={self.sample_rate:.4g}, sigma={self.noise_multiplier:g}, T={self.steps:,}"


@dataclass(frozen=True)
class Answer:
    """An epsilon (or mu), with a lower end where the accountant gives one."""

    value: float
    lower: float | None = None


@dataclass(frozen=True)
class Peer:
    """An accountant: how to call it, and what it says its number is."""

    name: str
    distribution: str
    module: str
    says: str
    epsilon: Callable[[Setting, float], Answer]
    calibrate: Callable[[Setting, float, float], float] | None = None

    def load(self) -> str | None:
        """Import the library; the reason why not, or None."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(self.module)
        except ImportError as problem:
            return f"{self.name}: skipped, {self.distribution} cannot be imported ({problem})"
        return None

    @property
    def label(self) -> str:
        """Name with the installed version."""
        try:
            return f"{self.name}, {version(self.distribution)}"
        except PackageNotFoundError:
            return f"{self.name}, source tree"


def calipers_epsilon(setting: Setting, delta: float) -> Answer:
    """The certified bracket, at the default relative tolerance."""
    from calipers.measure import measure
    from calipers.run import Run

    run = Run(sample_rate=setting.sample_rate, steps=setting.steps, noise_multiplier=setting.noise_multiplier)
    bracket = measure(run).epsilon(delta)
    return Answer(bracket.upper, bracket.lower)


def calipers_calibrate(setting: Setting, epsilon: float, delta: float) -> float:
    """Smallest noise multiplier whose upper bound meets the target."""
    from calipers.calibrate import calibrate
    from calipers.run import Run

    run = Run(sample_rate=setting.sample_rate, steps=setting.steps, noise_multiplier=setting.noise_multiplier)
    return float(calibrate(run, epsilon=epsilon, delta=delta).noise_multiplier)


def calipers_mu(setting: Setting, delta0: float) -> Answer:
    """mu up to delta0, as a bracket."""
    from calipers.measure import measure
    from calipers.run import Run

    run = Run(sample_rate=setting.sample_rate, steps=setting.steps, noise_multiplier=setting.noise_multiplier)
    mu = measure(run).gdp(delta0).mu
    return Answer(mu.upper, mu.lower)


def _google_event(setting: Setting, noise_multiplier: float | None = None):  # type: ignore[no-untyped-def]
    import dp_accounting as dpa

    noise = setting.noise_multiplier if noise_multiplier is None else noise_multiplier
    step = dpa.PoissonSampledDpEvent(setting.sample_rate, dpa.GaussianDpEvent(noise))
    return dpa.SelfComposedDpEvent(step, setting.steps)


def _google_pld(interval: float) -> tuple[Callable[..., Answer], Callable[..., float]]:
    def fresh():  # type: ignore[no-untyped-def]
        from dp_accounting.pld import PLDAccountant

        return PLDAccountant(value_discretization_interval=interval)

    def epsilon(setting: Setting, delta: float) -> Answer:
        return Answer(float(fresh().compose(_google_event(setting)).get_epsilon(delta)))

    def calibrate(setting: Setting, target: float, delta: float) -> float:
        import dp_accounting as dpa

        # The library's own example starts here; from 0 it would ask for a noise it cannot represent.
        bracket = dpa.ExplicitBracketInterval(0.5, 10.0)
        return float(
            dpa.calibrate_dp_mechanism(fresh, lambda s: _google_event(setting, s), target, delta, bracket, tol=1e-4)
        )

    return epsilon, calibrate


def _google_rdp(setting: Setting, delta: float) -> Answer:
    from dp_accounting.rdp import RdpAccountant

    return Answer(float(RdpAccountant().compose(_google_event(setting)).get_epsilon(delta)))


def _prv(setting: Setting, delta: float) -> Answer:
    from prv_accountant.dpsgd import DPSGDAccountant

    accountant = DPSGDAccountant(
        noise_multiplier=setting.noise_multiplier,
        sampling_probability=setting.sample_rate,
        max_steps=setting.steps,
        eps_error=0.01,
        delta_error=delta / 1000,
    )
    low, _, high = accountant.compute_epsilon(delta=delta, num_steps=setting.steps)
    return Answer(float(high), float(low))


def _prv_calibrate(setting: Setting, target: float, delta: float) -> float:
    from prv_accountant.dpsgd import find_noise_multiplier

    return float(find_noise_multiplier(setting.sample_rate, setting.steps, target, delta, eps_error=0.1))


def _opacus(mechanism: str) -> tuple[Callable[..., Answer], Callable[..., float]]:
    def epsilon(setting: Setting, delta: float) -> Answer:
        from opacus.accountants import create_accountant

        accountant = create_accountant(mechanism=mechanism)
        accountant.history = [(setting.noise_multiplier, setting.sample_rate, setting.steps)]
        return Answer(float(accountant.get_epsilon(delta=delta)))

    def calibrate(setting: Setting, target: float, delta: float) -> float:
        from opacus.accountants.utils import get_noise_multiplier

        return float(
            get_noise_multiplier(
                target_epsilon=target,
                target_delta=delta,
                sample_rate=setting.sample_rate,
                steps=setting.steps,
                accountant=mechanism,
                epsilon_tolerance=0.001,
            )
        )

    return epsilon, calibrate


def _connect_the_dots(package: str) -> Callable[[Setting, float], Answer]:
    def epsilon(setting: Setting, delta: float) -> Answer:
        module = "riskcal.accountants" if package == "riskcal" else "gdpnum"
        accountant = importlib.import_module(module).CTDAccountant()
        accountant.history = [(setting.noise_multiplier, setting.sample_rate, setting.steps)]
        return Answer(float(accountant.get_epsilon(delta=delta)))

    return epsilon


def _riskcal_calibrate(setting: Setting, target: float, delta: float) -> float:
    from riskcal import calibration

    evaluator = calibration.create_dpsgd_epsilon_evaluator(setting.sample_rate, setting.steps, delta)
    goal = calibration.CalibrationTarget(kind="epsilon_delta", epsilon=target, delta=delta)
    search = calibration.CalibrationConfig(increasing=False, param_min=0.5, param_max=10.0, param_tol=1e-4)
    return float(calibration.calibrate_parameter(evaluator, goal, search).parameter_value)


def gdpnum_mu(setting: Setting, cut: float) -> float:
    """gdpnum's mu; breakpoints with alpha or beta below ``cut`` are left out by the library."""
    from gdpnum.dpsgd import get_mu_and_regret_for_dpsgd

    mu, _ = get_mu_and_regret_for_dpsgd(setting.noise_multiplier, setting.sample_rate, setting.steps, err=cut)
    return float(mu)


OURS = Peer("Calipers", "calipers", "calipers.measure", "certified, both sides", calipers_epsilon, calipers_calibrate)

PEERS = [
    Peer(
        "dp_accounting PLD 1e-4", "dp-accounting", "dp_accounting", "upper bound (round-off aside)", *_google_pld(1e-4)
    ),
    Peer(
        "dp_accounting PLD 1e-3", "dp-accounting", "dp_accounting", "upper bound (round-off aside)", *_google_pld(1e-3)
    ),
    Peer("dp_accounting RDP", "dp-accounting", "dp_accounting", "upper bound, not tight", _google_rdp),
    Peer(
        "prv-accountant", "prv-accountant", "prv_accountant.dpsgd", "both sides, eps_error 0.01", _prv, _prv_calibrate
    ),
    Peer("opacus PRV", "opacus", "opacus.accountants", "upper bound, eps_error 0.01", *_opacus("prv")),
    Peer("opacus RDP", "opacus", "opacus.accountants", "upper bound, not tight", *_opacus("rdp")),
    Peer("opacus GDP", "opacus", "opacus.accountants", "central limit estimate", *_opacus("gdp")),
    Peer("gdpnum (PLD 1e-4)", "gdpnum", "gdpnum", "dp_accounting inside", _connect_the_dots("gdpnum")),
    Peer(
        "riskcal (PLD 1e-4)",
        "riskcal",
        "riskcal",
        "dp_accounting inside",
        _connect_the_dots("riskcal"),
        _riskcal_calibrate,
    ),
]

"""Without Opacus or JAX-Privacy the adapters say what to install, and importing them needs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calipers.adapters import jax_privacy, opacus, opacus_accountant, opacus_library
from calipers.adapters.jax_privacy_probe import JaxPrivacyConfiguration
from calipers.adapters.jax_privacy_target import DEFAULT_RUN, JaxPrivacyTarget
from calipers.adapters.opacus_probe import OpacusConfiguration
from calipers.adapters.opacus_target import OpacusTarget
from calipers.errors import InputError, MissingExtraError, UnsupportedError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("use", "library", "extra"),
    [
        (lambda: OpacusConfiguration(10, 2), "torch", "opacus"),
        (lambda: OpacusTarget().outputs(True, 1, RNG), "opacus", "opacus"),
        (lambda: opacus.attach(None, None), "opacus", "opacus"),
        (opacus_accountant.register, "opacus", "opacus"),
        (lambda: JaxPrivacyConfiguration(10, 2), "jax_privacy", "jax-privacy"),
        (lambda: JaxPrivacyTarget.of_run(DEFAULT_RUN).outputs(True, 1, RNG), "jax_privacy", "jax-privacy"),
        (lambda: jax_privacy.run_of(None), "jax_privacy", "jax-privacy"),
    ],
)
def test_a_missing_library_is_named_with_the_line_to_type(
    use: Callable[[], object], library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An absent library is a MissingExtraError, which is an ImportError."""
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"pip install '\.\[{extra}\]'"):
        use()


def test_a_library_that_fails_inside_is_not_called_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its version is named, and what it could not import; installing it again would change nothing."""
    (tmp_path / "opacus").mkdir()
    (tmp_path / "opacus" / "__init__.py").write_text("from torch import something_that_moved\n")
    (tmp_path / "torch.py").write_text("")
    metadata = tmp_path / "opacus-1.4.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: opacus\nVersion: 1.4.0\n")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("opacus", "torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(UnsupportedError, match=r"opacus 1\.4\.0 is installed, but .*something_that_moved"):
            opacus_library.opacus_module()
    finally:
        for name in ("opacus", "torch"):
            sys.modules.pop(name, None)


def test_importing_the_adapters_loads_no_foreign_library() -> None:
    """PyTorch, Opacus and JAX are imported on first use only."""
    modules = (
        *("opacus", "opacus_accountant", "opacus_probe", "opacus_target"),
        *("jax_privacy", "jax_privacy_probe", "jax_privacy_target"),
    )
    program = (
        f"import sys, importlib\nfor name in {modules!r}: importlib.import_module('calipers.adapters.' + name)\n"
        "print([m for m in ('torch', 'opacus', 'jax', 'jax_privacy', 'dp_accounting') if m in sys.modules])"
    )
    source = str(Path(__file__).parents[2] / "src")
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.strip() == "[]"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset_size": 0}, "dataset_size"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier"),
        ({"loss_reduction": "median"}, "loss_reduction"),
        ({"grad_sample_mode": "magic"}, "grad_sample_mode"),
    ],
)
def test_targets_check_their_settings_before_they_need_a_library(settings: dict[str, object], message: str) -> None:
    """Name, domain, value."""
    with pytest.raises(InputError, match=message):
        OpacusTarget(**settings)  # type: ignore[arg-type]

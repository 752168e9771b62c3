"""What a short command loads: special functions without the parts of numpy that it has no use for."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner

import calipers as cp
from calipers.cli import main

UNNEEDED = (
    "numpy.f2py",
    "numpy.testing",
    "numpy.ma",
    "calipers.pld.division",
    "calipers.pld.allocation",
    "calipers.cli.train",
    "tomllib",
    "importlib.resources",
    "scipy.stats",
    "scipy.optimize",
    "matplotlib",
)
MEASURE = ["measure", "--sample-rate", "0.1", "--steps", "3", "--noise-multiplier", "2"]


def loaded(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_measurement_loads_what_it_needs():
    """After `calipers measure` a dozen megabytes of other people's tools are still on the disk."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom calipers.cli import main\n"
        f"assert CliRunner().invoke(main, {MEASURE!r}).exit_code == 0\n"
        f"print([name for name in {UNNEEDED!r} if name in sys.modules])"
    )
    assert loaded(code) == "[]\n"


def test_numpy_is_left_as_it_was():
    """Afterwards numpy lists and gives everything again, and the same functions come out of scipy."""
    code = (
        "from calipers.cli.quick import load_special\nload_special()\nimport numpy, scipy.special\n"
        "assert {'f2py', 'testing'} <= set(numpy.__all__) | set(dir(numpy))\n"
        "numpy.testing.assert_equal(scipy.special.ndtr(0.0), 0.5)\nprint(numpy.f2py.__name__)"
    )
    assert loaded(code) == "numpy.f2py\n"


def test_scipy_documents_itself_to_those_who_come_later():
    """Only the docstrings of what the command loaded stay unparsed; they keep their text, and the parser its place."""
    code = (
        "from calipers.cli.quick import load_special\nload_special()\nimport scipy.special\n"
        "assert 'Cumulative' in scipy.special.ndtr.__doc__\n"
        "import scipy._lib._docscrape as parser\nprint(parser.FunctionDoc.__name__)"
    )
    assert loaded(code) == "FunctionDoc\n"


def test_a_poisson_run_is_computed_once_for_itself_and_for_its_claim():
    """The usual accounting of a Poisson run is its own; that of a shuffled run is not."""
    poisson = cp.measure(cp.Run(sample_rate=0.1, steps=3, noise_multiplier=2.0))
    assert poisson.claim.proof is poisson.evaluation.upper
    assert poisson.claim.epsilon(1e-5) == poisson.epsilon(1e-5).upper
    for other in ({"sampler": "balls-and-bins", "epochs": 1, "steps": None}, {"adjacency": "substitute"}):
        measured = cp.measure(cp.Run(dataset_size=100, batch_size=10, noise_multiplier=2.0, **{"steps": 3} | other))
        assert measured.claim.proof is not measured.evaluation.upper


def test_a_command_that_is_not_there_is_refused_with_the_nearest():
    result = CliRunner().invoke(main, ["mesure", "--help"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Did you mean measure?" in result.stderr

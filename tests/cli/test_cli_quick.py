"""What a short command loads: special functions without the parts of numpy that it has no use for."""

from __future__ import annotations

import subprocess
import sys

UNNEEDED = ("numpy.f2py", "numpy.testing", "scipy.stats", "scipy.optimize", "matplotlib", "rich")
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

"""What a user gets: the wheel holds the package, its type marker and licence, and nothing else, and it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "calipers"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling comes with the group test")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of src/calipers and src/calipers_verify is in the wheel; tests, docs and examples are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = {
        path.relative_to(SOURCE.parent).as_posix()
        for package in (SOURCE, SOURCE.parent / "calipers_verify")
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == source
    assert "calipers/py.typed" in names
    assert "calipers_verify/py.typed" in names


def test_wheel_carries_licence_version_and_command(wheel: Path) -> None:
    """Metadata: the licence text, the version of `_version.py`, the entry point."""
    version: dict[str, str] = {}
    exec((SOURCE / "_version.py").read_text("utf-8"), version)
    with zipfile.ZipFile(wheel) as archive:
        info = f"calipers-{version['__version__']}.dist-info"
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert "Apache License" in licence
    assert "License-Expression: Apache-2.0" in metadata
    assert "calipers = calipers.cli:main" in entry_points


def test_wheel_runs_on_its_own(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, the wheel's own files answer `--help`."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    program = "import calipers; print(calipers.__file__)"
    place = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(place.stdout.strip()).is_relative_to(tmp_path)
    shown = subprocess.run(
        [sys.executable, "-m", "calipers", "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "measure" in shown.stdout


def test_an_index_shows_no_link_that_leads_nowhere(wheel: Path) -> None:
    """README links to files of the repository; what is shown elsewhere has addresses, or words."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode("utf-8")
    assert "Description-Content-Type: text/markdown" in text
    assert "calipers measure" in text
    assert re.findall(r"\]\((?!https?://)", text) == []


def test_with_an_address_every_link_leads_to_the_repository() -> None:
    program = (
        "import sys; sys.path.insert(0, '.'); from hatch_build import for_an_index; "
        "print(for_an_index(open('README.md', encoding='utf-8').read(), 'https://example.org/calipers'))"
    )
    pytest.importorskip("hatchling", reason="hatchling comes with the group test")
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    places = re.findall(r"\]\(([^)]+)\)", found.stdout)
    own = [place.removeprefix("https://example.org/calipers/blob/main/") for place in places if "example.org" in place]
    assert len(own) >= 5
    assert all((ROOT / place.partition("#")[0]).is_file() for place in own)
    assert all(place.startswith("https://") for place in places)


def test_what_the_repository_needs_is_no_extra_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(name).decode("utf-8").splitlines()
    extras = {line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra")}
    assert extras.isdisjoint({"notebooks", "test", "dev", "docs", "browser", "libraries", "trackers"})
    core = {line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line}
    assert {re.split(r"\W", requirement)[0] for requirement in core} == {"click", "numpy", "scipy"}


def test_hints_name_the_package_where_it_was_installed(wheel: Path, tmp_path: Path) -> None:
    """In a clone '.[plots]' is right; a wheel has no clone around it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "from calipers.extras import hint, library\n"
        "print(hint(\"pip install '.[torch]' in the clone. More.\"))\n"
        "print(hint(\"pip install '.[jax-privacy]'.\"))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == ["pip install 'calipers[torch]'. More.", "pip install 'calipers[jax-privacy]'."]
    from calipers.extras import hint

    assert hint("pip install '.[torch]' in the clone.") == "pip install '.[torch]' in the clone."

"""What a user gets: the wheel holds the package, its type marker and licence, and nothing else, and it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "calipers"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling comes with the extra test")
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

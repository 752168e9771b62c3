"""A unit whose number of records nobody gave is refused everywhere: one record per unit would flatter."""

from __future__ import annotations

import json

import pytest

import calipers as cp
from calipers.adaptive import load_adaptive
from calipers.errors import InputError
from calipers.gate import read_described
from calipers.phases import load_runs
from calipers.run import Run

KEYS = {"dataset_size": 10_000, "batch_size": 100, "epochs": 10, "noise_multiplier": 1.0}
FILE = "dataset_size = 10000\nbatch_size = 100\nepochs = 10\nnoise_multiplier = 1.0\n"
OPEN = (
    "unit='user' leaves open how many records one user has. Add records_per_unit, the largest number; 1 where a user "
    "is one record, or is clipped and drawn as a whole."
)
MENU = 'sample_rate = 0.1\nsteps = 1\nunit = "user"\n[[step]]\nname = "quiet"\nnoise_multiplier = 2.0\n'


def refused(*made) -> str:
    make, *given = made
    with pytest.raises(InputError) as error:
        make(*given)
    return str(error.value)


def test_a_user_with_five_records_is_not_one_with_one() -> None:
    """What is at stake: the number that used to be assumed, and an attack on users of five records."""
    assert cp.measure(Run(**KEYS, unit="user", records_per_unit=1)).epsilon(1e-5).upper < 1.83
    assert cp.measure(Run(**KEYS, unit="user", records_per_unit=5)).epsilon(1e-5).lower > 11.6


def test_a_unit_needs_its_number_of_records() -> None:
    for record in (KEYS | {"unit": "user"}, KEYS | {"unit": "user", "records_per_unit": None}):
        assert refused(Run.from_dict, record) == OPEN
        assert refused(lambda record=record: Run(**record)) == OPEN
    assert Run(**KEYS, records_per_unit=1).unit is None


def test_a_run_file_needs_it_in_every_phase(tmp_path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'{FILE}unit = "user"\n')
    for read in (Run.from_toml, load_runs, lambda path: read_described(str(path))):
        assert refused(read, path) == f"{path}: {OPEN}"
    path.write_text(MENU)
    assert OPEN in refused(load_adaptive, path)
    path.write_text(f'{FILE}[[phase]]\nunit = "user"\nrecords_per_unit = 1\n[[phase]]\nunit = "user"\n')
    assert refused(load_runs, path) == f"{path}: {OPEN}"
    path.write_text(f'{FILE}unit = "user"\nrecords_per_unit = 5\n[[phase]]\n[[phase]]\nnoise_multiplier = 2.0\n')
    assert {phase.records_per_unit for phase in load_runs(path)} == {5}


def test_replacing_the_unit_asks_anew() -> None:
    """The largest number of records of a user says nothing about clients; the same unit keeps its number."""
    assert refused(lambda: Run(**KEYS).replace(unit="user")) == OPEN
    assert refused(lambda: Run(**KEYS, records_per_unit=1).replace(unit="user")) == OPEN
    patients = Run(**KEYS, unit="patient", records_per_unit=3)
    assert refused(lambda: patients.replace(unit="user")) == OPEN
    assert patients.replace(unit="patient", noise_multiplier=2.0).records_per_unit == 3
    assert patients.replace(unit="user", records_per_unit=1).records_per_unit == 1


@pytest.mark.parametrize("records", [1, 3])
def test_what_is_written_reads_back(records, tmp_path) -> None:
    """A number that was given is written down, also where it is 1."""
    run = Run(**KEYS, unit="user", records_per_unit=records)
    assert run.to_dict()["records_per_unit"] == records
    assert Run.from_dict(run.to_dict()) == run == run.replace()
    (tmp_path / "run.toml").write_text(run.to_toml())
    assert Run.from_toml(tmp_path / "run.toml") == run
    assert "records_per_unit" not in Run(**KEYS, records_per_unit=1).to_dict()


def test_a_document_without_the_number_is_refused(tmp_path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"run": KEYS | {"unit": "user"}}))
    assert refused(read_described, str(path)) == f"{path}: {OPEN}"
    path.write_text(json.dumps({"run": {"phase": [KEYS | {"unit": "user"}] * 2}}))
    assert refused(read_described, str(path)) == f"{path}: {OPEN}"

#!/usr/bin/env bash
# A person's first five minutes, from a fresh clone: what README says to set up, then every command it shows.
# Usage: tests/first_five_minutes.sh [REPOSITORY [FOLDER]]
set -euo pipefail
repository=$(cd "${1:-$(dirname "$0")/..}" && pwd)
folder=${2:-$(mktemp -d)}
git clone -q "$repository" "$folder/calipers"
cd "$folder/calipers"
make run
.venv/bin/python -m pip --disable-pip-version-check --no-input install -qq 'pip>=25.1'
.venv/bin/python -m pip --disable-pip-version-check --no-input install -qq --group test --editable '.[verify]'
.venv/bin/python -m pytest -m slow tests/cli/test_first_five_minutes.py

#!/usr/bin/env bash
# The checks of this project. The first fails if the training, as it is written, would break the budget; the others
# look at a training that was really executed.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python}
"$python" -m pytest -q
"$python" train.py run.receipt.json
"$python" -m calipers verify-receipt run.receipt.json
"$python" -m calipers check run.receipt.json

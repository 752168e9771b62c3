"""`python -m calipers` is the command `calipers`."""

from __future__ import annotations

import sys

from calipers.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m calipers_verify FILE...`: what every file proves, and in which scope.

Exit status 0 if all files are proven, 1 if one is refused, 2 if nothing could be checked.
"""

from __future__ import annotations

import sys

from calipers_verify.reading import Refused

USAGE = "usage: python -m calipers_verify FILE..."
NO_FLINT = "The checker computes with python-flint, which is not installed: pip install python-flint"


def main(paths: list[str]) -> int:
    """Check the files named, and say what each proves."""
    try:
        from calipers_verify.checker import verify_file
    except ModuleNotFoundError as error:
        if error.name != "flint":
            raise
        print(NO_FLINT, file=sys.stderr)
        return 2
    if not paths:
        print(USAGE, file=sys.stderr)
        return 2
    status = 0
    for path in paths:
        try:
            print(*(f"{path}: {line}" for line in verify_file(path).lines()), sep="\n")
        except Refused as reason:
            print(f"{path}: REFUSED: {reason}.", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

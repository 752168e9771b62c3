"""`python -m calipers_verify FILE...`: one sentence for every claim proven; exit status 1 if any file is refused."""

from __future__ import annotations

import sys

from calipers_verify.checker import verify_file
from calipers_verify.reading import Refused


def main(paths: list[str]) -> int:
    """Check the files named, and say what each proves."""
    status = 0 if paths else 2
    for path in paths:
        try:
            print(*(f"{path}: proven: {sentence}" for sentence in verify_file(path).sentences()), sep="\n")
        except Refused as reason:
            print(f"{path}: REFUSED: {reason}.", file=sys.stderr)
            status = 1
    if not paths:
        print("usage: python -m calipers_verify FILE...", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

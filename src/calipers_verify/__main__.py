"""`python -m calipers_verify FILE...`: one sentence for every claim proven; exit status 1 if any file is refused."""

from __future__ import annotations

import sys

from calipers_verify.checker import verify_file
from calipers_verify.reading import Refused


def main(paths: list[str]) -> int:
    """Check the files named, and say what each proves."""
    if not paths or any(path.startswith("-") for path in paths):
        print("usage: python -m calipers_verify FILE...", file=sys.stderr)
        return 2
    status = 0
    for path in paths:
        try:
            verdict = verify_file(path)
        except Refused as reason:
            print(f"{path}: REFUSED: {reason}.", file=sys.stderr)
            status = 1
        else:
            for sentence in verdict.sentences():
                print(f"{path}: proven: {sentence}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

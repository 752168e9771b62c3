"""What a package index would refuse or show wrongly: `python .ci/package_metadata.py dist/*`."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

NEEDED = ("Metadata-Version", "Name", "Version", "Summary", "License-Expression", "Requires-Python", "Author")
RELATIVE = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")
INTERNAL = {"notebooks", "test", "dev", "docs", "browser", "libraries", "trackers"}


def metadata(path: Path) -> Message:
    """The metadata of a wheel or an sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return Parser().parsestr(archive.read(name).decode("utf-8"))
    with tarfile.open(path) as archive:
        (name,) = (name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        content = archive.extractfile(name)
        assert content is not None
        return Parser().parsestr(content.read().decode("utf-8"))


def complaints(found: Message) -> list[str]:
    """Everything that is wrong with it."""
    said = [f"there is no {key}" for key in NEEDED if not found.get(key)]
    text = str(found.get_payload())
    if found.get("Description-Content-Type") != "text/markdown" or len(text) < 500:
        said.append("there is no README in Markdown")
    said += [f"README links to {place}, which an index does not have" for place in RELATIVE.findall(text)]
    said += [f"{extra} is a public extra" for extra in found.get_all("Provides-Extra", []) if extra in INTERNAL]
    if len(found.get("Summary", "")) > 512 or "\n" in found.get("Summary", ""):
        said.append("the summary is no short line")
    return said


def main(paths: list[str]) -> None:
    """Exit status 1, with one line per complaint."""
    bad = [f"{path}: {text}" for path in paths for text in complaints(metadata(Path(path)))]
    kinds = {Path(path).suffix for path in paths}
    bad += [] if kinds == {".whl", ".gz"} else [f"expected a wheel and an sdist, got {', '.join(paths)}"]
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main(sys.argv[1:])

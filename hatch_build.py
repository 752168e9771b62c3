"""What a package index shows: README with links that lead somewhere, and the addresses of the project.

README links to files of the repository, which a package index does not have. With an `address`
(`[tool.hatch.metadata.hooks.custom]` of pyproject.toml) the links lead there; without one they are text.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?<!!)\[(?P<words>[^\]]+)\]\((?P<place>(?!https?://|#|mailto:)[^)\s]+)\)")
_PICTURE = re.compile(r"!\[(?P<words>[^\]]*)\]\((?P<place>(?!https?://)[^)\s]+)\)")
_PAGES = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}


def for_an_index(readme: str, address: str) -> str:
    """README whose links and pictures are absolute, or words where there is no address."""
    if not address:
        return _LINK.sub(r"\g<words>", _PICTURE.sub(r"\g<words>", readme))
    pictures = _PICTURE.sub(rf"![\g<words>]({address}/raw/main/\g<place>)", readme)
    return _LINK.sub(rf"[\g<words>]({address}/blob/main/\g<place>)", pictures)


class CustomMetadataHook(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, object]) -> None:
        """Set both."""
        address = str(self.config.get("address", "")).rstrip("/")
        text = for_an_index((Path(self.root) / "README.md").read_text("utf-8"), address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        pages = {name: f"{address}/blob/main/{place}" for name, place in _PAGES.items()}
        metadata["urls"] = {"Source": address, "Issues": f"{address}/issues", **pages} if address else {}

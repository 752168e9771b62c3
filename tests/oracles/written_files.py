"""What `reproduce` leaves in a folder, read with other tools than those that wrote it."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree

import numpy as np


def check_files(result, *, figure: bool) -> None:
    """CSV files have lines, all as long as the header; pictures are there if `figure`, parse, and are not blank."""
    kinds = {path.suffix for path in result.files}
    assert {".csv", ".json"} <= kinds
    assert ({".png", ".svg"} <= kinds) == figure
    for path in result.files:
        if path.suffix == ".csv":
            header, *lines = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
            assert lines
            assert all(len(line) == len(header) for line in lines)
        elif path.suffix == ".svg":
            assert len(list(ElementTree.parse(path).iter())) > 50
        elif path.suffix == ".png":
            from matplotlib import image

            inked = np.mean(np.any(image.imread(path)[..., :3] < 0.9, axis=-1))
            assert 0.005 < inked < 0.6
    assert result.rows

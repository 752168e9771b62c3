"""Private training holds little more than plain training does: every tensor counted, while it is alive."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.memory import Counting, peaks  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("name", "shape", "records"),
    [
        ("resnet18", (3, 32, 32), 256),
        ("wideresnet-16-4", (3, 32, 32), 256),
        ("vit-tiny", (3, 32, 32), 256),
        ("transformer-tiny", (128,), 256),
    ],
)
def test_the_peak_is_within_three_tenths_of_plain_training(name, shape, records) -> None:
    """What the clipped sum of a batch holds at its peak, beside the gradient of plain SGD."""
    plain, clipped = peaks(name, shape, records)
    assert clipped <= 1.3 * plain


def test_memory_is_counted_while_it_is_alive() -> None:
    """Three tensors of 400 bytes, two of them at a time; a view takes nothing."""
    with Counting() as counting:
        first = torch.empty(100, device="meta")
        second = first + 1
        view = second.view(10, 10)
        del first
        third = view * 2
        assert counting.now == 800
        del second, view, third
    assert (counting.now, counting.peak) == (0, 800)

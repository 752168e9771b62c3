"""What samplers share that cut an order of the records into equal batches."""

from __future__ import annotations

from calipers.run_fields import RunFields
from calipers.schemes.scheme import Scheme


class CutScheme(Scheme):
    """Consecutive blocks of an order; the last one, if it is shorter, is dropped or kept."""

    equal_batches = True

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """What becomes of the records that do not fill a batch is a choice somebody made."""
        if run.sizes is None:
            return ()
        batches, rest = divmod(run.sizes[0], run.sizes[1])
        if not rest:
            return ()
        if run.last_batch == "keep":
            return (f"An epoch is read as {batches:,} full batches and a last one of {rest:,}.",)
        left, them = ("the record left over is", "it") if rest == 1 else (f"the {rest:,} records left over are", "them")
        return (
            f"An epoch is read as {batches:,} full batches; {left} dropped from it. A loader that keeps {them} as a "
            "short last batch (PyTorch's default) is last_batch = 'keep'.",
        )

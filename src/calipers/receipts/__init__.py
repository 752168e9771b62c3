"""Receipts: what was executed, how that was found out, and what was measured, so that a third party can measure again.

from calipers.receipts import receipt, verify_receipt
receipt(record, deltas=[1e-5])             # a record of `attach`, a Run, or a report of `probe`
verify_receipt(loaded)
"""

from __future__ import annotations

from calipers.gate.receipt_shape import SCHEMA
from calipers.receipts.verify import Confirmation, Verified, read_receipt, verify_receipt
from calipers.receipts.write import receipt, write_receipt

__all__ = ["SCHEMA", "Confirmation", "Verified", "read_receipt", "receipt", "verify_receipt", "write_receipt"]

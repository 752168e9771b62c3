"""Certificates: numbers of Calipers that anybody can check without Calipers.

`certify` writes one; `calipers_verify`, a package of its own that imports nothing from here, checks it. `verify`
calls it.
"""

from __future__ import annotations

from calipers.certificates.certify import Certificate, certified, certify, verify

__all__ = ["Certificate", "certified", "certify", "verify"]

"""One exception tree.

Everything Calipers refuses is a `CalipersError`. A message gives the name, the domain, the
value and the remedy, in one sentence a person can act on.
"""

from __future__ import annotations


class CalipersError(Exception):
    """Base of everything Calipers raises on purpose."""


class InputError(CalipersError, ValueError):
    """A value lies outside its domain, or two options contradict each other."""


class ConditionError(InputError):
    """A theorem was asked for a number where its own conditions do not hold."""


class UnsupportedError(CalipersError):
    """The question is well posed, but no proven statement answers it (yet)."""


class CertificationError(CalipersError, ArithmeticError):
    """A bound could not be certified. No number is better than a wrong one."""


class MissingExtraError(CalipersError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""


class CalipersWarning(UserWarning):
    """Something seen while code of others runs that changes what can be proven about it."""

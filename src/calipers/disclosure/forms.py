"""The forms by name."""

from __future__ import annotations

from collections.abc import Callable

from calipers.disclosure.facts import Disclosure
from calipers.disclosure.registry import registry_yaml
from calipers.disclosure.text import checklist, model_card, short
from calipers.domains import choice

FORMS: dict[str, Callable[[Disclosure], str]] = {
    "short": short,
    "model-card": model_card,
    "checklist": checklist,
    "registry": registry_yaml,
}


def render(found: Disclosure, form: str) -> str:
    """The text of one form."""
    return FORMS[choice("form", form, tuple(FORMS))](found)

"""What others ask for: entries of registries, checklists of standards, blocks of model cards, ten lines for a page.

    from calipers.disclosure import disclose, render
    print(render(disclose(measure(run), deltas=[1e-5]), "short"))

Every form states what a proof carries, says who has to answer what Calipers cannot know, and leaves no gap unsaid.
"""

from __future__ import annotations

from calipers.disclosure.facts import Disclosure, disclose
from calipers.disclosure.forms import FORMS, render

__all__ = ["FORMS", "Disclosure", "disclose", "render"]

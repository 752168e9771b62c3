"""Formulas as MathML: written in LaTeX, typeset by the browser itself, with nothing to fetch.

Sphinx asks for a renderer of the two nodes that hold LaTeX, a formula in a line and a formula of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def mathml(text: str, *, block: bool) -> str:
    """The formula as a <math> element."""
    from docutils.utils.math import latex2mathml

    tree: Any = latex2mathml.tex2mathml(text, as_block=block)
    return tree if isinstance(tree, str) else "".join(tree)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Make MathML the renderer of this documentation."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))

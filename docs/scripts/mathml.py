"""A Markdown extension: `$…$` and `$$…$$` become MathML, which browsers draw without scripts.

Zensical imports it by its name; docs/scripts is on the path while the site is built.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, fromstring

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.inlinepatterns import InlineProcessor

NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'


def to_element(latex: str, display: str) -> Element:
    """The `<math>` element of a formula; its source stays in `alttext` for screen readers."""
    element = fromstring(convert(latex, display=display).replace(NAMESPACE, ""))
    element.set("alttext", latex)
    return element


class InlineMath(InlineProcessor):
    """`$…$` inside a paragraph."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # noqa: N802
        """Replace one formula."""
        return to_element(m[1], "inline"), m.start(0), m.end(0)


class DisplayMath(BlockProcessor):
    """A block between `$$` and `$$`."""

    def test(self, parent: Element, block: str) -> bool:
        """Whether a block is a formula."""
        return block.startswith("$$") and block.rstrip().endswith("$$")

    def run(self, parent: Element, blocks: list[str]) -> None:
        """Replace it."""
        formula = Element("div", {"class": "formula"})
        formula.append(to_element(blocks.pop(0).strip().strip("$").strip(), "block"))
        parent.append(formula)


class MathExtension(Extension):
    """Registers both."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Formulas come before emphasis and escapes, so that `_` and `\\` belong to them."""
        md.parser.blockprocessors.register(DisplayMath(md.parser), "display-math", 175)
        md.inlinePatterns.register(InlineMath(r"(?<!\\)\$([^$\n]+)\$", md), "math", 185)


def makeExtension(**options: object) -> MathExtension:  # noqa: N802
    """Called by Python-Markdown."""
    return MathExtension(**options)

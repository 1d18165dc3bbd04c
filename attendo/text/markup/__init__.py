"""HTML and XML: extraction of text to translate, and reinsertion of tags into the translation."""

from attendo.text.markup.parser import PLACEHOLDER, MarkupFormat, TagRules
from attendo.text.markup.segments import needs_space_after, needs_space_before
from attendo.text.markup.writer import CharacterLinks, Markup, place_atoms

__all__ = [
    "PLACEHOLDER",
    "CharacterLinks",
    "Markup",
    "MarkupFormat",
    "TagRules",
    "needs_space_after",
    "needs_space_before",
    "place_atoms",
]

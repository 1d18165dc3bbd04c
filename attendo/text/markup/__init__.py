"""HTML and XML: extraction of text to translate, and reinsertion of tags into the translation."""

from attendo.text.markup.parser import MarkupFormat, TagRules
from attendo.text.markup.writer import CharacterLinks, Markup

__all__ = ["CharacterLinks", "Markup", "MarkupFormat", "TagRules"]

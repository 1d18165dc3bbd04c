"""Texts with tags: what is to be translated, and the translation with the tags in it again."""

from attendo.text.markup.parser import MarkupFormat, TagRules
from attendo.text.markup.writer import CharacterLinks, Markup

__all__ = ["CharacterLinks", "Markup", "MarkupFormat", "TagRules"]

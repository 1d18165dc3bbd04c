"""Texts with tags: what is to be translated, and the translation with the tags in it again."""

from attendo.text.markup.document import Markup
from attendo.text.markup.elements import Outline
from attendo.text.markup.scanning import Kind
from attendo.text.markup.writing import CharacterLinks

__all__ = ["CharacterLinks", "Kind", "Markup", "Outline"]

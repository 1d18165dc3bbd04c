"""Texts with tags: what is to be translated, and the translation with the tags in it again."""

from attendo.text.markup.parser import Kind, Outline
from attendo.text.markup.writer import CharacterLinks, Markup

__all__ = ["CharacterLinks", "Kind", "Markup", "Outline"]

"""The built-in task: a small English to Chinese grammar that makes word-aligned pairs without end.

Each sentence pattern is a short function that weaves both languages together, so links come out of construction:
a measure word is linked with the number or article it follows (一 本 with "a", 这本 with "the"), 的 with the word that
modifies, 了 with the word that carries the past (the verb or "did"), 吗 with the word that opens the question. 把 has
no English counterpart and stays without a link.
"""

from attendo.recipes.builtin.task import STUDY_SENTENCES, BuiltinTask, Pair

__all__ = ["STUDY_SENTENCES", "BuiltinTask", "Pair"]

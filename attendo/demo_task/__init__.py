"""The built-in task: a small English to Chinese grammar that generates an endless stream of word-aligned pairs.

Each sentence pattern is a short function that builds both languages together, so the alignment is exact. Every word
with an English counterpart is linked to it. A measure word is linked to its noun (三 本 书: 本 to "books"), and 这本 to
article and noun. The particles 的, 了 and 吗, and 把, have no English counterpart and no link.
"""

from attendo.demo_task.task import STUDY_SENTENCES, AlignedPair, BuiltinTask

__all__ = ["STUDY_SENTENCES", "AlignedPair", "BuiltinTask"]

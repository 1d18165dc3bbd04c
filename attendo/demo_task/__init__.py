"""The built-in task: a small English to Chinese grammar that makes word-aligned pairs without end.

Each sentence pattern is a short function that weaves both languages together, so links come out of construction:
every word with an English counterpart is linked with it, a measure word with the noun that asks for it (三 本 书: 本
with "books"), 这本 with both article and noun. The particles 的, 了 and 吗, and 把, have no English word of their own
and stay without a link.
"""

from attendo.demo_task.task import STUDY_SENTENCES, AlignedPair, BuiltinTask

__all__ = ["STUDY_SENTENCES", "AlignedPair", "BuiltinTask"]

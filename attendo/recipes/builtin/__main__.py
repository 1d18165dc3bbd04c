"""Prints thirty pairs of the built-in task with their alignments, for whoever reviews the grammar."""

import sys
from itertools import islice

from attendo.recipes.builtin import BuiltinTask

for pair in islice(BuiltinTask().train(), 30):
    links = " ".join(f"{pair.source_words[i]}-{pair.target_words[j]}" for i, j in pair.alignment)
    sys.stdout.write(f"{pair.source}\n{pair.target}\n{links}\n\n")

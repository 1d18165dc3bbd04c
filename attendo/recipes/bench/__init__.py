"""How fast is decoding beside other systems with the same weights, in one run?"""

from attendo.recipes.bench.comparison import Doing, LeftOut, Measured, Plan, Rival, compare
from attendo.recipes.bench.machine import facts
from attendo.recipes.bench.planning import Sentences, forced_work, natural_work, parse_rivals, read_sentences
from attendo.recipes.bench.random_network import random_network
from attendo.recipes.bench.rivals import RIVALS
from attendo.recipes.bench.scoring import Scoring

__all__ = [
    "RIVALS",
    "Doing",
    "LeftOut",
    "Measured",
    "Plan",
    "Rival",
    "Scoring",
    "Sentences",
    "compare",
    "facts",
    "forced_work",
    "natural_work",
    "parse_rivals",
    "random_network",
    "read_sentences",
]

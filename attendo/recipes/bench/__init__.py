"""How fast is decoding beside other systems with the same weights, in one run?"""

from attendo.recipes.bench.comparison import Doing, LeftOut, Measured, Plan, Rival, compare
from attendo.recipes.bench.machine import facts
from attendo.recipes.bench.planning import forced_work, natural_work, parse_rivals
from attendo.recipes.bench.random_network import random_network
from attendo.recipes.bench.rivals import RIVALS

__all__ = [
    "RIVALS",
    "Doing",
    "LeftOut",
    "Measured",
    "Plan",
    "Rival",
    "compare",
    "facts",
    "forced_work",
    "natural_work",
    "parse_rivals",
    "random_network",
]

"""Certificate of an import from Marian: attendo beside Marian itself, on the same ids and on the same texts."""

import random
from collections.abc import Sequence
from dataclasses import replace

from attendo.errors import MessagePart
from attendo.interop.certificate import Bounds, Certificate
from attendo.interop.certify import certify, collect_sentences
from attendo.interop.compared_systems import TorchSystem
from attendo.interop.marian.compared_marian import open_marian
from attendo.interop.marian.imported import ImportedMarian
from attendo.interop.marian.marian_process import require_marian
from attendo.text import CONTROL_PIECES
from attendo.text_model import TextModel

_LONG_SOURCES = (131, 160, 200)  # tokens; positions that short sources never reach


def certify_marian_import(imported: ImportedMarian, model: TextModel, texts: Sequence[str] | None) -> Certificate:
    """Compare the scores of every token, greedy search and a beam of 4 on `texts` or on random sentences.

    Searches are not compared with pre-norm, because Marian's decoder then computes other scores than its scorer.
    """
    require_marian()
    collected = collect_sentences(model, texts)
    sources = [*collected.sources, *_long_sources(model.source_tokenizer.vocab_size)]
    orders = imported.source, imported.target
    with open_marian(imported.folder.files, imported.folder.weights, orders) as marian:
        ours = TorchSystem(model.network, "marian")
        certificate = certify(ours, marian, sources, Bounds(), compare_searches=imported.decodes_as_it_scores)
    longest = MessagePart("marian_long_sources_compared", count=len(_LONG_SOURCES), longest=max(_LONG_SOURCES))
    return replace(certificate, notes=(*collected.notes, longest, *imported.remarks()))


def _long_sources(vocab_size: int) -> list[list[int]]:
    dice = random.Random(2)
    tokens = range(len(CONTROL_PIECES), vocab_size)
    return [dice.choices(tokens, k=count) for count in _LONG_SOURCES] if tokens else []

"""Our vocabulary in the order of fairseq's: `<s>` 0, pad 1, eos 2, unk 3, pieces, languages and `<mask>`, the rest.

So a model that came from there has the ids again that it had.
"""

from attendo.interop.from_bart import BEGIN
from attendo.interop.rearranged import NEVER, Rearranged
from attendo.interop.vocabularies import names_of
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD, UNK, Tokenizer
from attendo.text_model import TextModel

_PAD_PLACE = 1


def fairseq_order(model: TextModel) -> Rearranged:
    """Sines count positions from behind the number of pad, which is then where it must be.

    Our bos is what answers begin from. Where it is a copy of another token, it is this one there. Where it is one of
    its own, it is their `<s>`, or if they have another the last of all.
    """
    config, tokenizer, twin = model.network.config, model.target_tokenizer, _twin(model.network)
    own = [BOS] if twin is None else []
    symbols = {name: EOS + 1 + place for place, name in enumerate(tokenizer.symbols)}
    begin = [symbols.pop(BEGIN)] if BEGIN in symbols else []
    named = tokenizer.vocab_size - _nameless(names_of(tokenizer))
    pieces, rest = range(EOS + 1 + len(tokenizer.symbols), named), range(named, tokenizer.vocab_size)
    order = [*(begin or own), EOS, UNK, *pieces, *symbols.values(), *rest, *(own if begin else ())]
    order.insert(_PAD_PLACE if config.positions == "learned" else config.position_offset - 1, PAD)
    rows = {number: row for row, number in enumerate(order)}
    if twin is not None:
        rows[BOS] = rows[twin]
    return Rearranged(tuple(rows[number] for number in sorted(rows)), frozenset({BOS} - {*own}))


def fairseq_names(tokenizer: Tokenizer, order: Rearranged) -> dict[str, int]:
    """What their tokens are called, by their ids; those that have but a number for a name are left out."""
    names = names_of(tokenizer)
    named = {number: names[number] for number in range(len(names) - _nameless(names)) if number not in order.copies}
    if BEGIN in names:
        named |= {names.index(BEGIN): named.pop(BOS, names[BOS])}
    return {name: order.rows[number] for number, name in sorted(named.items(), key=lambda each: order.rows[each[0]])}


def _twin(network: Transformer) -> int | None:
    """The token that bos was made a copy of, if it was, and has stayed one."""
    bias, table = network.output.bias, network.target.tokens.weight
    if bias is None or bias[BOS].item() > NEVER:
        return None
    same = (table == table[BOS]).all(1).nonzero().flatten().tolist()
    return next((each for each in sorted(same, key=lambda each: each == PAD) if each != BOS), None)


def _nameless(names: list[str]) -> int:
    """How many of the last ones have but their number there, one less than ours: rows that never were for a piece."""
    last = len(names) - 2
    return next((n for n, name in enumerate(reversed(names)) if name.strip("<>") != f"row {last - n}"), 0)

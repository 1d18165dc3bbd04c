"""What a model puts before every source and every answer, such as the tokens of their languages."""

from collections.abc import Sequence

from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.text import EOS, Tokenizer
from attendo.text_model.phrasing import Ids

_SHOWN = 12  # symbols that a message names


def prefixes_of(config: GenerationConfig, source: Tokenizer, target: Tokenizer) -> tuple[Ids, Ids]:
    """The ids before a source, and those that an answer begins with."""
    return (
        _symbol_ids(source, config.source_prefix, "source_prefix"),
        _symbol_ids(target, config.target_prefix, "target_prefix"),
    )


def _symbol_ids(tokenizer: Tokenizer, pieces: Sequence[str], name: str) -> Ids:
    """Symbols have the ids behind eos, in their order."""
    for piece in pieces:
        if piece not in tokenizer.symbols:
            known = ", ".join(tokenizer.symbols[:_SHOWN]) or "none"
            more = f" and {len(tokenizer.symbols) - _SHOWN} more" if len(tokenizer.symbols) > _SHOWN else ""
            raise UsageError("unknown_prefix_symbol", option=name, symbol=piece, known=known, more=more)
    return tuple(EOS + 1 + tokenizer.symbols.index(piece) for piece in pieces)

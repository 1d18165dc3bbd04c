"""Every decoding option: its name, type, default, bounds, description and section of the help.

`GenerationConfig`, `GenerateOptions`, `attendo generate` and the HTTP APIs are made from these declarations. The module
imports only the standard library, because `attendo generate --help` reads it and the import of pydantic takes 0.2 s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal

MAX_ROWS = 1_000  # of a beam; each row has one number for every token of the vocabulary
MAX_FINISHED = 10_000  # finished hypotheses
MAX_TOKENS = 20_000  # of an answer; at 1,000 tokens/s this takes 20 s
_MAX_FACTOR = 100  # maximum target tokens per source token
_MAX_CANDIDATES = 1_000  # of MBR, which compares each candidate with all others
_MAX_PASSES, _MAX_LENGTHS = 100, 128  # of mask-predict
_MAX_SOURCE_TOKENS = 1_000_000  # tokens of a source or of a batch
_MAX_VOCAB_SIZE = 10_000_000
_MAX_SYMBOLS = 100  # of a prefix
_MAX_EXPONENT = 10  # of the length in tokens
LARGE = 1e6  # beyond this, or below its inverse, fp32 overflows or loses differences

SECTIONS = ("Search", "Sampling", "Content", "Length", "Output", "Machine")  # of the help

# Names and values of version 0.1.0, which are still accepted.
RENAMED_SETTINGS: Mapping[str, str] = {
    "groups": "beam_groups",
    "diversity": "diversity_penalty",
    "typical": "typical_p",
    "no_repeat_ngram": "no_repeat_ngram_size",
}
RENAMED_OPTIONS: Mapping[str, str] = {"like": "preset", "ban": "banned_phrases", **RENAMED_SETTINGS}
RENAMED_VALUES: Mapping[str, Mapping[str, str]] = {
    "at_limit": {"cut": "truncate", "end": "force_eos", "free": "any"},
    "long_source": {"refuse": "error", "cut": "truncate"},
}


@dataclass(frozen=True)
class OptionInfo:
    """The properties of an option besides its name, type and default."""

    description: str
    section: str
    ge: int | float | None = None  # minimum
    le: int | float | None = None  # maximum
    max_items: int | None = None  # of a list
    flag: str | None = None  # on the command line, if it differs from the name

    @property
    def bounds(self) -> dict[str, Any]:
        """The bounds by their pydantic names."""
        bounds = {"ge": self.ge, "le": self.le, "max_length": self.max_items}
        return {name: value for name, value in bounds.items() if value is not None}


def _option(default: Any, section: str, description: str, **details: Any) -> Any:
    return field(default=default, metadata={"option": OptionInfo(description, section, **details)})


def list_options(declarations: type) -> list[Field[Any]]:
    """Return the declared options of a class, in order."""
    return [each for each in fields(declarations) if "option" in each.metadata]


@dataclass(frozen=True)
class GenerationFields:
    """Decoding settings: the fields of generation.json, of [generation] in a run file, and options of a call."""

    beam: int = _option(1, "Search", "beam size; 1 is greedy search", ge=1, le=MAX_ROWS)
    beam_groups: int = _option(
        1, "Search", "groups of diverse beam search, a divisor of the beam size; 1 is plain", ge=1, le=MAX_ROWS
    )
    diversity_penalty: float = _option(
        0.5, "Search", "diverse beam search: penalty for a token that an earlier group chose", ge=0, le=LARGE
    )
    normalise: Literal["none", "average", "gnmt", "reward"] = _option(
        "average", "Search", "length normalisation of scores"
    )
    length_penalty: float = _option(
        1.0, "Search", "exponent of average and gnmt, or reward per token", ge=-_MAX_EXPONENT, le=_MAX_EXPONENT
    )
    word_penalty: float = _option(0.0, "Search", "penalty per token, before length normalisation", ge=-LARGE, le=LARGE)
    counts_eos: bool = _option(True, "Length", "count EOS as a token of the length")
    stop: Literal["first", "settled", "exhaustive", "first_come", "leader", "shrinking"] = _option(
        "settled",
        "Search",
        "stop rule of a beam: settled, first and exhaustive are early_stopping False, True and never of transformers; "
        "first_come is fairseq's, shrinking is Marian's, leader is CTranslate2's without a length penalty",
    )
    patience: float = _option(
        1.0, "Search", "stop rule first: finish this many times the beam size", ge=1 / LARGE, le=MAX_FINISHED
    )

    sample: bool = _option(False, "Sampling", "sample tokens instead of searching for the best")
    seed: int = _option(1, "Sampling", "seed for sampling", ge=-(2**63), le=2**63 - 1)
    temperature: float = _option(
        1.0, "Sampling", "divides the logits; below 1 favours probable tokens", ge=1 / LARGE, le=LARGE
    )
    top_k: int = _option(0, "Sampling", "sample from the k most probable tokens; 0 is all", ge=0, le=_MAX_VOCAB_SIZE)
    top_p: float = _option(
        1.0, "Sampling", "sample from the smallest set of tokens with this total probability", ge=1 / LARGE, le=1
    )
    min_p: float = _option(0.0, "Sampling", "minimum probability relative to the best token", ge=0, le=1)
    typical_p: float = _option(
        1.0, "Sampling", "typical sampling: total probability of the tokens nearest the entropy", ge=1 / LARGE, le=1
    )

    no_repeat_ngram_size: int = _option(
        0, "Content", "no repeated n-gram of this size; 0 allows all", ge=0, le=_MAX_VOCAB_SIZE
    )
    repetition_penalty: float = _option(
        1.0, "Content", "above 1 makes generated tokens less probable", ge=1 / LARGE, le=LARGE
    )
    repetition_of: Literal["log_probabilities", "logits"] = _option(
        "log_probabilities", "Content", "values that the repetition penalty multiplies"
    )
    renormalise: bool = _option(False, "Content", "renormalise probabilities after rules are applied")
    allow_unk: bool = _option(True, "Content", "allow the unknown token")
    coverage_penalty: float = _option(
        0.0, "Content", "weight of the penalty for source tokens without attention", ge=0, le=LARGE
    )

    min_length_factor: float = _option(0.0, "Length", "minimum output tokens per source token", ge=0, le=_MAX_FACTOR)
    min_length_extra: int = _option(0, "Length", "added to the minimum", ge=0, le=MAX_TOKENS)
    max_length_factor: float = _option(2.0, "Length", "maximum output tokens per source token", ge=0, le=_MAX_FACTOR)
    max_length_extra: int = _option(20, "Length", "added to the maximum", ge=1, le=MAX_TOKENS)
    at_limit: Literal["truncate", "force_eos", "any"] = _option(
        "truncate", "Length", "at the maximum length: truncate the output, force EOS, or allow any token as the last"
    )
    source_prefix: tuple[str, ...] = _option(
        (), "Content", "symbols before every source, such as its language", max_items=_MAX_SYMBOLS
    )
    source_suffix: tuple[str, ...] = _option(
        (), "Content", "symbols after the EOS of every source, such as its language", max_items=_MAX_SYMBOLS
    )
    target_prefix: tuple[str, ...] = _option(
        (), "Content", "symbols that every output begins with", max_items=_MAX_SYMBOLS
    )
    context_sentences: int = _option(
        0, "Content", "preceding sentences of a text before each source, for a model trained with them", ge=0, le=16
    )
    max_source: int = _option(8192, "Length", "maximum source tokens", ge=1, le=_MAX_SOURCE_TOKENS)
    long_source: Literal["error", "truncate"] = _option(
        "error", "Length", "a source with more than max_source tokens: an error, or truncated and reported"
    )

    passes: int = _option(10, "Search", "kind masked: passes of mask-predict", ge=1, le=_MAX_PASSES)
    length_candidates: int = _option(
        5, "Search", "kind masked: target lengths tried; the most probable output is returned", ge=1, le=_MAX_LENGTHS
    )
    graph_search: Literal["lookahead", "greedy", "viterbi", "tokens"] = _option(
        "lookahead",
        "Search",
        "kind graph: the path is chosen by hops and tokens, by hops alone, or by joint Viterbi; tokens: by the "
        "probability of each next token, which a beam, samples, prefixes and rules always use",
    )
    path_length_penalty: float = _option(
        1.0, "Search", "graph_search viterbi: exponent of the length", ge=-_MAX_EXPONENT, le=_MAX_EXPONENT
    )
    merge_repeats: bool = _option(
        False,
        "Content",
        "kinds masked and graph: leave out a token that equals the token before it, the most frequent error of a "
        "network that predicts all tokens at once; not for text with double tokens, such as letters",
    )

    mbr: Literal["none", "chrf", "bleu"] = _option("none", "Search", "minimum Bayes risk decoding with this metric")
    mbr_candidates: int = _option(
        32, "Search", "samples that mbr chooses from; with a beam, its hypotheses", ge=1, le=_MAX_CANDIDATES
    )

    batch_tokens: int = _option(
        0,
        "Machine",
        "source tokens per batch, times the beam size; 0 is 4,096, or 32,768 on a GPU",
        ge=0,
        le=_MAX_VOCAB_SIZE,
    )
    engine: Literal["auto", "textbook", "cached", "fast"] = _option(
        "auto", "Machine", "auto is cached, or fast on a GPU; textbook, cached and fast give the same outputs"
    )
    compile: bool = _option(False, "Machine", "compile the fast engine: up to a minute per new batch size, then faster")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = _option(
        "auto", "Machine", "precision of the network; auto keeps that of the weights"
    )


@dataclass(frozen=True)
class CallFields:
    """Options of one call only. A list applies to all texts, or has one item per text."""

    preset: Literal["fairseq", "hf", "ctranslate2", "marian"] | None = _option(
        None, "Search", "use the default decoding settings of this system; other options override them"
    )
    prefix: str | Sequence[str] = _option("", "Content", "text that every output begins with")
    constraints: Sequence[str] | Sequence[Sequence[str]] = _option(
        (), "Content", "phrases that the output must contain", flag="--constraint"
    )
    banned_phrases: Sequence[str] = _option(
        (), "Content", "words or phrases that the output must not contain", flag="--banned-phrase"
    )
    glossary: Any = None  # a `Glossary` or its file: an option of Python and of `attendo generate`, not of requests
    do_not_translate: Sequence[str] = _option((), "Content", "words or phrases that the output must repeat unchanged")
    keep: Sequence[str] = _option(
        (), "Content", "text that the output must repeat unchanged: placeholders, urls, emails or numbers"
    )
    max_length: int | None = _option(
        None, "Length", "maximum output tokens; default: factor x source tokens + extra", ge=1, le=MAX_TOKENS
    )
    min_length: int | None = _option(None, "Length", "minimum output tokens", ge=1, le=MAX_TOKENS)
    split: bool | None = _option(
        None, "Length", "generate sentence by sentence; default: if the model was trained on single sentences"
    )
    n_best: int = _option(1, "Output", "number of hypotheses per text", ge=1, le=MAX_FINISHED)
    distinct: bool | None = _option(
        None, "Output", "no duplicate texts among the hypotheses; default: true unless sampling or with a preset"
    )
    alignments: bool = _option(False, "Output", "return cross-attention alignments")
    replace_unknown: bool = _option(
        False, "Output", "replace each unknown token of the output by the source token that it attends to most"
    )
    transfer_case: bool = _option(
        False,
        "Output",
        "give output words the capitals of the source words that they are aligned with; words that the vocabulary has "
        "only in lower case are read so",
    )
    check: Literal["off", "report", "repair"] = _option(
        "off", "Output", "report faults of the outputs, or also generate outputs with faults again"
    )
    check_detached: bool = _option(
        False, "Output", "with check: also find outputs that do not depend on the source, by two more passes"
    )

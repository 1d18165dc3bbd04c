"""Turns text into a folder of ids in two passes: one to scan it, one to write it.

index.json  train-*.shard  valid.jsonl  source.* and target.* (or joint.*)  bad-lines.tsv
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from attendo import atomic_files
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, collect_symbols, suggest_encoding_fix, suggest_fields
from attendo.data.filtering import BadLines
from attendo.data.index import CorpusRecord, Index, make_file_record, write_index
from attendo.data.lm_text import WindowWriter, sample_lines, scan_text
from attendo.data.preparation import LocalWorker, Preparation, ScannedText, Workers
from attendo.data.prepared import VALID_FILE
from attendo.data.scan_pass import HeldOutSplit, ReservoirSample, TextPair
from attendo.data.staging import StagingFolder
from attendo.data.write_pass import ShardedWriter, WriterOutputs, add_faults
from attendo.errors import DataError, UsageError
from attendo.model_files import json_sha256
from attendo.text import Tokenizer
from attendo.text.config import TokenizerConfig
from attendo.text.factory import build_tokenizers, save_tokenizers
from attendo.text.newlines import add_newline_symbol

Tokenizers = tuple[Tokenizer, Tokenizer]
PreparationInputs = tuple[DataConfig, TokenizerConfig | Tokenizers, int]  # text, tokenizer, seed
Stage = Literal["reading", "building the vocabulary", "writing"]
PassResult = TypeVar("PassResult")
_PARTS_VERSION = 1  # a new version if the parts change


@dataclass(frozen=True)
class Preparing:
    """Progress of the preparation."""

    stage: Stage
    lines: int
    of: int | None  # None while unknown


def prepare(
    training: Sequence[Corpus],
    valid: Corpus | None,
    settings: DataConfig,
    tokenizer: TokenizerConfig | Tokenizers,
    seed: int,
    folder: Path,
    workers: Workers | None = None,
) -> Iterator[Preparing]:
    """Write the folder that `open_prepared` opens. Without `valid` some training pairs are held out for validation.

    `tokenizer` holds the settings of new tokenizers, or existing ones. After an error no partial folder remains. If
    there are too many bad lines, their list is kept. With `workers` a call that was killed or interrupted can be
    continued by the same call.
    """
    if settings.text is not None:
        yield from _prepare_text(settings, tokenizer, seed, folder)
        return
    inputs, tokenizer = (settings, tokenizer, seed), _load_tokenizer_files(_add_symbols(tokenizer, settings))
    corpora = (*training, *(() if valid is None else (valid,)))
    with StagingFolder(folder.absolute(), workers is not None) as staging:
        work = Preparation(corpora, len(training), settings, seed, staging.parts)
        described = _describe_inputs((settings, tokenizer, seed))  # with the content of tokenizer files
        work.parts.begin(json_sha256([_PARTS_VERSION, described, *work.list_files()]))
        running = workers or LocalWorker(staging.add_size)
        scanned = yield from _report_progress(work.scan(running), "reading", None)
        held_out = _check_scan(work, scanned, staging)
        loaded = work.load_tokenizers()
        if loaded is None:
            sample: list[TextPair] = []
            if isinstance(tokenizer, TokenizerConfig):
                sample = work.sample(scanned, held_out, ReservoirSample(seed))
                yield Preparing("building the vocabulary", 0, len(sample))
                sources, targets = ([pair[side] for pair in sample] for side in (0, 1))
                tokenizer = build_tokenizers(sources, targets, tokenizer)
            work.save_tokenizers(tokenizer, len(sample))
            loaded = tokenizer, len(sample)
        lines = staging.lines = sum(window.lines for window in scanned.windows)
        yield from _report_progress(work.encode(scanned, running), "writing", lines)
        writer = _write_shards(work, scanned, loaded[0], staging)
        _finish(staging, writer, *loaded, inputs)


def _check_scan(work: Preparation, scanned: ScannedText, staging: StagingFolder) -> frozenset[int]:
    """Raise an error with a list if there are too many bad lines. Return the keys of held-out sources."""
    split = HeldOutSplit()
    with staging.bad_lines.open("w", encoding="utf-8") as listing:
        for index, corpus in enumerate(work.corpora):
            bad = BadLines(corpus.name, listing)
            for window in scanned.of_corpus(index):
                part = work.parts.read("scan", window)
                add_faults(bad, part)
                if work.holds_out:
                    split.offer(part.arrays["sources"][~work.find_duplicates(window, part)])
            listing.flush()
            advice = suggest_encoding_fix(corpus, bad.counts) or suggest_fields(corpus, bad.counts)
            bad.check(work.settings.max_bad_ratio, staging.bad_lines, advice)
    keys = split.select_keys()
    work.write_held_out(keys)
    return keys


def _write_shards(
    work: Preparation, scanned: ScannedText, tokenizers: Tokenizers, staging: StagingFolder
) -> ShardedWriter:
    """Merge the encoded windows, in the order of the text."""
    with (
        staging.bad_lines.open("w", encoding="utf-8") as listing,
        (staging.path / VALID_FILE).open("w", encoding="utf-8") as valid_texts,
    ):
        writer = ShardedWriter(work.settings, tokenizers, WriterOutputs(staging, listing, valid_texts))
        for index, corpus in enumerate(work.corpora):
            parts = (work.parts.read("encode", window) for window in scanned.of_corpus(index))
            write = writer.write_training_corpus if index < work.num_training else writer.write_valid_corpus
            write(corpus, parts)
    if not any(corpus.pairs for corpus in writer.corpora):
        raise DataError("no_training_pairs_left")
    return writer


def _prepare_text(
    settings: DataConfig, tokenizer: TokenizerConfig | Tokenizers, seed: int, folder: Path
) -> Iterator[Preparing]:
    """Prepare plain text for a language model. A bad line is an error."""
    inputs = (settings, tokenizer, seed)
    if isinstance(tokenizer, TokenizerConfig):
        tokenizer = _load_tokenizer_files(add_newline_symbol(tokenizer))
    kind = tokenizer.kind if isinstance(tokenizer, TokenizerConfig) else tokenizer[1].kind
    with StagingFolder(folder.absolute()) as staging:
        yield Preparing("reading", 0, None)
        text_scan = scan_text(settings, kind)
        lines: list[str] = []
        if isinstance(tokenizer, TokenizerConfig):
            yield Preparing("building the vocabulary", 0, text_scan.lines)
            lines = sample_lines(text_scan.training, kind, seed)
            tokenizers = build_tokenizers((), lines, tokenizer)
        else:
            tokenizers = tokenizer
        writing = WindowWriter(settings, tokenizers[1], staging.path)
        yield from _report_progress(writing.write(text_scan, staging.path / VALID_FILE), "writing", text_scan.lines)
        staging.bad_lines.touch()
        _finish(staging, writing, tokenizers, len(lines), inputs)


def _describe_inputs(inputs: PreparationInputs, include_defaults: bool = True) -> dict[str, Any]:
    """Return all settings that determine the content of the folder, or only those that differ from their defaults."""
    settings, tokenizer, seed = inputs
    # BPE-dropout is sampled during training, so one folder serves any rate.
    described = (
        tokenizer.model_dump(mode="json", exclude={"dropout"}, exclude_defaults=not include_defaults)
        if isinstance(tokenizer, TokenizerConfig)
        else {"given": [_tokenizer_digest(each) for each in tokenizer]}
    )
    return {
        "data": settings.model_dump(mode="json", exclude_defaults=not include_defaults),
        "tokenizer": described,
        "seed": seed,
    }


def settings_hash(settings: DataConfig, tokenizer: TokenizerConfig | Tokenizers, seed: int) -> str:
    """Return the `PreparedData.settings_hash` of data made with these settings. Adding a setting does not change it."""
    return json_sha256(_describe_inputs((settings, tokenizer, seed), include_defaults=False))


def _report_progress(
    progress: Generator[int, None, PassResult], stage: Stage, total_lines: int | None
) -> Generator[Preparing, None, PassResult]:
    """Yield each line count as a progress report."""
    while True:
        try:
            lines = next(progress)
        except StopIteration as end:
            found: PassResult = end.value
            return found
        yield Preparing(stage, lines, total_lines)


def _add_symbols(tokenizer: TokenizerConfig | Tokenizers, settings: DataConfig) -> TokenizerConfig | Tokenizers:
    """Make tags, features and turn separators symbols, which are never split. Existing tokenizers must have them.

    Symbols of validation pairs are included, or a feature that occurs only there would be split into letters.
    """
    corpora = (*settings.training, *settings.validation)
    symbols = dict.fromkeys(symbol for corpus in corpora for symbol in collect_symbols(corpus))
    if isinstance(tokenizer, TokenizerConfig):
        known = tuple(dict.fromkeys((*tokenizer.symbols, *symbols)))
        return tokenizer if known == tokenizer.symbols else tokenizer.replace(symbols=known)
    if unknown := [symbol for symbol in symbols if symbol not in tokenizer[0].symbols]:
        raise UsageError("symbol_not_in_tokenizer", symbol=unknown[0])
    return tokenizer


def _load_tokenizer_files(tokenizer: TokenizerConfig | Tokenizers) -> TokenizerConfig | Tokenizers:
    """Load `tokenizer.file` and `target_file` before any text is read. Without a file, return the settings."""
    if isinstance(tokenizer, TokenizerConfig) and tokenizer.file is not None:
        return build_tokenizers((), (), tokenizer)
    return tokenizer


def _tokenizer_digest(tokenizer: Tokenizer) -> str:
    with TemporaryDirectory() as folder:
        return json_sha256([make_file_record(path).sha256 for path in tokenizer.save(Path(folder), "tokenizer")])


def _finish(
    staging: StagingFolder,
    writer: ShardedWriter | WindowWriter,
    tokenizers: Tokenizers,
    sample_pairs: int,
    inputs: PreparationInputs,
) -> None:
    """Write tokenizers, the list of bad lines and the index, and publish the folder."""
    folder, corpora = staging.path, apply_temperature(inputs[0], writer.corpora)
    save_tokenizers(folder, *tokenizers)
    staging.bad_lines.rename(folder / "bad-lines.tsv")
    shards = {shard.file for corpus in corpora for shard in corpus.all_shards}
    shards |= {shard.file for shard in writer.valid.shards}
    index = Index(
        pairs=sum(corpus.pairs for corpus in corpora),
        source_tokens=sum(corpus.source_tokens for corpus in corpora),
        target_tokens=sum(corpus.target_tokens for corpus in corpora),
        source_vocab_size=tokenizers[0].vocab_size,
        target_vocab_size=tokenizers[1].vocab_size,
        sample_pairs=sample_pairs,
        max_length=inputs[0].max_length,
        window=inputs[0].window if isinstance(writer, WindowWriter) else None,
        corpora=corpora,
        valid=writer.valid,
        files={path.name: make_file_record(path) for path in sorted(folder.iterdir()) if path.name not in shards},
        settings=_describe_inputs(inputs),
        settings_sha256=settings_hash(*inputs),
    )
    write_index(folder, index)
    atomic_files.replace_folder(staging.folder, folder)


def apply_temperature(settings: DataConfig, corpora: Sequence[CorpusRecord]) -> tuple[CorpusRecord, ...]:
    """Raise the weights of small corpora by `data.temperature` T (Arivazhagan et al., 2019). The largest one keeps its.

    A group is the corpora with one tag, or a corpus without a tag. Its share of an epoch is proportional to the power
    1/T of its weighted pairs.
    """
    configs = settings.training
    if settings.temperature == 1 or len(configs) != len(corpora):
        return tuple(corpora)
    groups = [each.tag or str(number) for number, each in enumerate(configs)]
    pairs = dict.fromkeys(groups, 0.0)
    for group, corpus in zip(groups, corpora, strict=True):
        pairs[group] += corpus.weight * corpus.pairs
    largest = max(pairs.values())
    factors = {group: (largest / each) ** (1 - 1 / settings.temperature) for group, each in pairs.items() if each}
    return tuple(
        corpus.replace(weight=corpus.weight * factors.get(group, 1.0))
        for group, corpus in zip(groups, corpora, strict=True)
    )

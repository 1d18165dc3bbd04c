"""From text to a folder of ids: all of it is read once to know it, and once more to write it down.

index.json  train-*.shard  valid.jsonl  source.* and target.* (or joint.*)  bad-lines.tsv
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, symbols_of
from attendo.data.index import Index, digest, file_record, write_index
from attendo.data.lm_text import TextWriting, sampled_lines, survey_text
from attendo.data.prepared import VALID_NAME
from attendo.data.scan_pass import Sample, read_through
from attendo.data.staging import NewFolder
from attendo.data.write_pass import Outputs, Writing
from attendo.errors import DataError, UsageError
from attendo.text import Tokenizer
from attendo.text.config import TokenizerConfig
from attendo.text.factory import build_tokenizers
from attendo.text.newlines import for_running_text

Tokenizers = tuple[Tokenizer, Tokenizer]
Asked = tuple[DataConfig, TokenizerConfig | Tokenizers, int]  # text, how it is cut, seed
Stage = Literal["reading", "building the vocabulary", "writing"]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Preparing:
    """How far the preparation is."""

    stage: Stage
    lines: int
    of: int | None  # None while nobody knows


def prepare(
    training: Sequence[Corpus],
    valid: Corpus | None,
    settings: DataConfig,
    tokenizer: TokenizerConfig | Tokenizers,
    seed: int,
    folder: Path,
) -> Iterator[Preparing]:
    """Write the folder that `open_prepared` opens. Without `valid` some training pairs are kept back for validation.

    `tokenizer` says how to build the tokenizers, or brings them along. Whatever goes wrong, nothing half-written stays;
    where there are too many bad lines, their list does.
    """
    if settings.text is not None:
        yield from _prepare_text(settings, tokenizer, seed, folder)
        return
    asked, tokenizer = tokenizer, _read_files(_knowing_symbols(tokenizer, settings))
    with NewFolder(folder.absolute()) as place:
        sample = Sample(seed) if isinstance(tokenizer, TokenizerConfig) else Sample(seed, pairs=0)
        reading = read_through(training, valid, settings, seed, place, sample)
        survey = yield from _told(reading, "reading", None)
        if isinstance(tokenizer, TokenizerConfig):
            yield Preparing("building the vocabulary", 0, len(survey.sample))
            sources, targets = [source for source, _ in survey.sample], [target for _, target in survey.sample]
            tokenizers = build_tokenizers(sources, targets, tokenizer)
        else:
            tokenizers = tokenizer
        with (
            place.bad_lines.open("w", encoding="utf-8") as listing,
            (place.new / VALID_NAME).open("w", encoding="utf-8") as valid_texts,
        ):
            writing = Writing(settings, tokenizers, survey, seed, Outputs(place, listing, valid_texts))
            for corpus in training:
                yield from _told(writing.training_corpus(corpus), "writing", sum(survey.lines))
            if valid is not None:
                yield from _told(writing.valid_corpus(valid), "writing", sum(survey.lines))
        if not any(corpus.pairs for corpus in writing.corpora):
            raise DataError("no_training_pairs_left")
        _save(tokenizers, place.new)
        place.take_bad_lines()
        write_index(place.new, _index(place.new, writing, tokenizers, len(survey.sample), (settings, asked, seed)))
        place.publish()


def _prepare_text(
    settings: DataConfig, tokenizer: TokenizerConfig | Tokenizers, seed: int, folder: Path
) -> Iterator[Preparing]:
    """The same of running text, for which a bad line is an error."""
    asked = tokenizer
    if isinstance(tokenizer, TokenizerConfig):
        tokenizer = _read_files(for_running_text(tokenizer))
    kind = tokenizer.kind if isinstance(tokenizer, TokenizerConfig) else tokenizer[1].kind
    with NewFolder(folder.absolute()) as place:
        yield Preparing("reading", 0, None)
        survey = survey_text(settings, kind)
        lines: list[str] = []
        if isinstance(tokenizer, TokenizerConfig):
            yield Preparing("building the vocabulary", 0, survey.lines)
            lines = sampled_lines(survey.learnt, kind, seed)
            tokenizers = build_tokenizers((), lines, tokenizer)
        else:
            tokenizers = tokenizer
        writing = TextWriting(settings, tokenizers[1], place.new)
        yield from _told(writing.write(survey, place.new / VALID_NAME), "writing", survey.lines)
        _save(tokenizers, place.new)
        place.bad_lines.touch()
        place.take_bad_lines()
        write_index(place.new, _index(place.new, writing, tokenizers, len(lines), (settings, asked, seed)))
        place.publish()


def _made_from(asked: Asked, whole: bool = True) -> dict[str, Any]:
    """All settings that decide what is in the folder, or those alone that are not as if they were left out."""
    settings, tokenizer, seed = asked
    # BPE-dropout is drawn while training: one folder serves any rate of it.
    described = (
        tokenizer.model_dump(mode="json", exclude={"dropout"}, exclude_defaults=not whole)
        if isinstance(tokenizer, TokenizerConfig)
        else {"given": [_identity(each) for each in tokenizer]}
    )
    return {"data": settings.model_dump(mode="json", exclude_defaults=not whole), "tokenizer": described, "seed": seed}


def settings_hash(settings: DataConfig, tokenizer: TokenizerConfig | Tokenizers, seed: int) -> str:
    """What `Prepared.settings_hash` of data made with these settings is. One setting more would not change it."""
    return digest(_made_from((settings, tokenizer, seed), whole=False))


def _told(progress: Generator[int, None, Found], stage: Stage, of: int | None) -> Generator[Preparing, None, Found]:
    """Each count of lines as a report."""
    while True:
        try:
            lines = next(progress)
        except StopIteration as end:
            found: Found = end.value
            return found
        yield Preparing(stage, lines, of)


def _knowing_symbols(tokenizer: TokenizerConfig | Tokenizers, settings: DataConfig) -> TokenizerConfig | Tokenizers:
    """Tags, features and the like must be symbols, which are never cut: new tokenizers get them, ready ones have them.

    Those of validation pairs too, or a feature that only they have would be spelled letter by letter.
    """
    corpora = (*settings.training, *settings.validation)
    symbols = dict.fromkeys(symbol for corpus in corpora for symbol in symbols_of(corpus))
    if isinstance(tokenizer, TokenizerConfig):
        known = tuple(dict.fromkeys((*tokenizer.symbols, *symbols)))
        return tokenizer if known == tokenizer.symbols else tokenizer.replace(symbols=known)
    if unknown := [symbol for symbol in symbols if symbol not in tokenizer[0].symbols]:
        raise UsageError("symbol_not_in_tokenizer", symbol=unknown[0])
    return tokenizer


def _read_files(tokenizer: TokenizerConfig | Tokenizers) -> TokenizerConfig | Tokenizers:
    """The tokenizers in `tokenizer.file` and `target_file`, before any text is read; settings without a file stay."""
    if isinstance(tokenizer, TokenizerConfig) and tokenizer.file is not None:
        return build_tokenizers((), (), tokenizer)
    return tokenizer


def _save(tokenizers: Tokenizers, folder: Path) -> None:
    source, target = tokenizers
    if source is target:
        source.save(folder, "joint")
    else:
        source.save(folder, "source")
        target.save(folder, "target")


def _identity(tokenizer: Tokenizer) -> str:
    with TemporaryDirectory() as folder:
        return digest([file_record(path).sha256 for path in tokenizer.save(Path(folder), "tokenizer")])


def _index(
    folder: Path, writing: Writing | TextWriting, tokenizers: Tokenizers, sample_pairs: int, asked: Asked
) -> Index:
    corpora = writing.corpora
    shards = {shard.file for corpus in corpora for shard in corpus.shards}
    shards |= {shard.file for shard in writing.valid.shards}
    return Index(
        pairs=sum(corpus.pairs for corpus in corpora),
        source_tokens=sum(corpus.source_tokens for corpus in corpora),
        target_tokens=sum(corpus.target_tokens for corpus in corpora),
        source_vocab_size=tokenizers[0].vocab_size,
        target_vocab_size=tokenizers[1].vocab_size,
        sample_pairs=sample_pairs,
        max_length=asked[0].max_length,
        window=asked[0].window if isinstance(writing, TextWriting) else None,
        corpora=corpora,
        valid=writing.valid,
        files={path.name: file_record(path) for path in sorted(folder.iterdir()) if path.name not in shards},
        settings=_made_from(asked),
        settings_sha256=settings_hash(*asked),
    )

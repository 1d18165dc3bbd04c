"""Whether the parts fit together: tables and vocabularies, inputs and labels."""

from collections.abc import Iterator, Sequence

from attendo.data.batch import Batch, Example, collate
from attendo.data.prepared import Prepared
from attendo.model.transformer import Transformer
from attendo.recipes.doctor.finding import MOST_EXAMPLES, Finding, shortened
from attendo.recipes.doctor.reading import pair_at
from attendo.text import BOS, EOS, PAD, UNK, Tokenizer

_VALIDATION_PAIRS = 8  # made into a batch and read back


def tying(network: Transformer, data: Prepared) -> Finding:
    """Tables must be as large as their vocabularies, and shared exactly where `model.tie` says so."""
    tie, joint = network.config.tie, data.source_tokenizer is data.target_tokenizer
    faults = [*_wrong_sizes(network, data), *_wrongly_shared(network)]
    if tie == "all" and not joint:
        faults.append("model.tie is all, but source and target have vocabularies of their own")
    if faults:
        advice = "set tokenizer.joint to true, or model.tie to output; prepared data must be that of the network"
        return Finding("tying", "fault", "; ".join(faults), advice, about="network")
    found = f"{'one vocabulary' if joint else 'two vocabularies'}, model.tie {tie}"
    if joint and tie != "all" and network.source is not None:
        saved = network.target.tokens.weight.numel() * (2 if tie == "none" else 1)
        advice = "one table for both sides (model.tie all) usually does as well"
        found = f"{found}: {saved:,} parameters more than with one table"
        return Finding("tying", "note", found, advice, values={"parameters": saved}, about="network")
    return Finding("tying", "ok", found, about="network")


def shift(batches: Sequence[Batch], data: Prepared, recut: bool) -> Finding:
    """Labels are the target one step ahead, from bos to eos, and the ids are those of the text.

    With `recut` (BPE-dropout) a text is cut into other pieces than in the shards, and is compared as text.
    """
    faults = [fault for batch in batches for fault in (*_shift_faults(batch), *_strangers(batch, data, recut))]
    faults += _misread(data)
    rows = sum(len(batch.labels) for batch in batches)
    if not faults:
        found = f"labels of {rows:,} rows are the target one step ahead, and the ids those of the text"
        return Finding("shift", "ok", found, values={"rows": rows}, about="network")
    return Finding(
        "shift",
        "fault",
        f"{len(faults):,} of {rows:,} rows are not a target and the same one step ahead",
        "the network would learn something else than to go on: mend how batches are made (data/batch.py)",
        tuple(faults[:MOST_EXAMPLES]),
        {"rows": rows, "faults": len(faults)},
        "network",
    )


def _wrong_sizes(network: Transformer, data: Prepared) -> Iterator[str]:
    target = data.target_tokenizer.vocab_size
    sizes = [("target table", network.target.tokens.num_embeddings, target)]
    sizes.append(("output", network.output.out_features, target))
    if network.source is not None:
        sizes.append(("source table", network.source.tokens.num_embeddings, data.source_tokenizer.vocab_size))
    for name, rows, size in sizes:
        if rows != size:
            yield f"the {name} has {rows:,} rows for a vocabulary of {size:,}"


def _wrongly_shared(network: Transformer) -> Iterator[str]:
    table, tie = network.target.tokens.weight, network.config.tie
    shared = [("output", network.output.weight is table, tie != "none")]
    if network.source is not None:
        shared.append(("source table", network.source.tokens.weight is table, tie == "all"))
    for name, is_shared, meant in shared:
        if is_shared != meant:
            yield f"the {name} {'shares' if is_shared else 'does not share'} the target table, against model.tie {tie}"


def _shift_faults(batch: Batch) -> Iterator[str]:
    """One at most for each row."""
    rows = zip(batch.source_ids.tolist(), batch.target_ids.tolist(), batch.labels.tolist(), strict=True)
    for number, (source, inputs, labels) in enumerate(rows):
        end = labels.index(EOS) if EOS in labels else -1
        if inputs[0] != BOS:
            fault = f"the input begins with {inputs[0]}, not bos"
        elif end < 0 or any(each != PAD for each in labels[end + 1 :]):
            fault = "the labels do not end with eos"
        elif inputs[: end + 1] == labels[: end + 1]:
            fault = "the input holds each label itself"
        elif inputs[1 : end + 1] != labels[:end]:
            fault = f"the labels {labels[:6]} are not the input {inputs[:6]} one step ahead"
        elif EOS not in source or any(each != PAD for each in source[source.index(EOS) + 1 :]):
            fault = "the source does not end with eos"
        else:
            continue
        yield f"{_named(batch, number)}: {fault}"


def _strangers(batch: Batch, data: Prepared, recut: bool) -> Iterator[str]:
    """Rows that are not the pair of the training data that they say they are."""
    tokenizers = (data.source_tokenizer, data.target_tokenizer)
    sides = zip(batch.source_ids.tolist(), batch.labels.tolist(), strict=True)
    for row, (number, ids) in enumerate(zip(batch.numbers, sides, strict=False)):
        pair = pair_at(data, number)
        for name, tokenizer, found, stored in zip(("source", "target"), tokenizers, ids, pair, strict=True):
            plain = _plain(found)
            same = tokenizer.decode(plain) == tokenizer.decode(stored) if recut else plain == list(stored)
            if not same:
                yield f"{_named(batch, row)}: the {name} is not that of the pair in the prepared data"
                break


def _misread(data: Prepared) -> Iterator[str]:
    """Validation texts, made into a batch and read back. A text with an unknown part cannot be."""
    tokenizers = (data.source_tokenizer, data.target_tokenizer)
    texts = data.valid[:_VALIDATION_PAIRS]
    pairs = [Example(tokenizers[0].encode(source), tokenizers[1].encode(target)) for source, target in texts]
    batch = collate(pairs) if pairs else None
    for number, (source, target) in enumerate(texts):
        assert batch is not None
        sides = (batch.source_ids[number].tolist(), batch.labels[number].tolist())
        for tokenizer, text, ids in zip(tokenizers, (source, target), sides, strict=True):
            if not _reads_back(tokenizer, text, _plain(ids)):
                yield f"validation pair {number + 1}: read back it is not {shortened(text)!r}"


def _reads_back(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> bool:
    """Word by word: some tokenizers know one kind of white space, and no line breaks."""
    return UNK in ids or tokenizer.decode(ids).split() == text.split()


def _plain(ids: Sequence[int]) -> list[int]:
    return [each for each in ids if each not in (PAD, EOS)]


def _named(batch: Batch, row: int) -> str:
    return f"pair {batch.numbers[row] + 1:,}" if row < len(batch.numbers) else f"row {row + 1}"

"""Network checks on real batches: causal mask, padding mask, shifted labels, tied embeddings."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BatchStream
from attendo.doctor.data_sampling import read_pair
from attendo.doctor.finding import MAX_EXAMPLES, Finding
from attendo.errors import LocalizedText, cut_line, join_texts
from attendo.model.parallel import ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD, UNK
from attendo.text.byte_level_bpe import ImportedVocabulary
from attendo.text.scripts import is_unspaced
from attendo.text.vocabulary import VocabularyTokenizer
from attendo.train.parallel_loss import sentence_losses
from attendo.train.update import Updater

_NUM_CUTS = 4  # positions after which the target is changed
_EXTRA_PADDING = 3  # positions
# Largest allowed change of a logit relative to the standard deviation of all logits. Batches of other shapes round
# differently. Without a mask, logits change by about their standard deviation.
TOLERANCE = {"fp32": 1e-3, "bf16": 0.1, "fp16": 0.1}
_VALIDATION_PAIRS = 8  # pairs collated into a batch and decoded again
MAX_PAIRS_PER_CHECK = 4
MAX_TOKENS_PER_SIDE = 24  # a fault shows at the start of a sentence, and a large network stays fast
SPARE_POSITIONS = 4  # positions that a check may add to the longest side, control token included
_MAX_BATCHES = 8  # batches searched for pairs with different sources


def check_causal_leak(updater: Updater, pairs: Sequence[Example]) -> Finding:
    """Check that changing target tokens after a position does not change the logits up to it."""
    batch = make_batch(pairs, updater.network)
    updater.network.train()  # with the same dropout seed each time; generation may use other kernels
    before = _compute_seeded_logits(updater, batch)
    spread, last = _logit_std(before, batch), batch.target_ids.size(1) - 2
    changes = {}
    for cut in sorted({round(part * last / (_NUM_CUTS - 1)) for part in range(_NUM_CUTS)}):
        others = replace(batch, target_ids=_replace_after(batch.target_ids, cut, before.size(-1)))
        difference = (_compute_seeded_logits(updater, others) - before)[:, : cut + 1]
        changes[cut] = float(difference.abs().max()) / spread
    cut = max(changes, key=lambda position: changes[position])
    values = {"change": changes[cut], "position": cut}
    if changes[cut] <= TOLERANCE[updater.precision]:
        found = LocalizedText(
            "no logit depends on a later target token (largest change {change:.1g})", change=changes[cut]
        )
        return Finding("causal leak", "ok", found, values=values, about="network")
    return Finding(
        "causal leak",
        "fault",
        LocalizedText(
            "other target tokens after position {cut} change the logits up to it, by {change:.2g} of their spread",
            cut=cut,
            change=changes[cut],
        ),
        "the network is shown the answers: mend the causal mask (nn/masks.py)",
        values=values,
        about="network",
    )


def check_padding(updater: Updater, pairs: Sequence[Example]) -> Finding:
    """Check that padding and longer sentences in the batch do not change a sentence's logits."""
    updater.network.eval()
    rows = _shorten_rows(pairs)
    together = make_batch(rows, updater.network)
    if isinstance(updater.network, ParallelTransformer):
        return _check_parallel_padding(updater, rows, together)
    before = compute_logits(updater, together)
    spread = _logit_std(before, together)
    difference = compute_logits(updater, _add_padding(together)) - before
    by_padding = float(difference[_token_mask(together)].abs().max()) / spread
    alone = [compute_logits(updater, make_batch([row], updater.network))[0] for row in rows]
    by_neighbours = max(
        float((logits - before[number, : len(logits)]).abs().max()) / spread for number, logits in enumerate(alone)
    )
    values = {"by_padding": by_padding, "by_neighbours": by_neighbours}
    worst = max(by_padding, by_neighbours)
    if worst <= TOLERANCE[updater.precision]:
        found = LocalizedText(
            "no logit depends on padding or on other sentences (largest change {worst:.1g})", worst=worst
        )
        return Finding("padding", "ok", found, values=values, about="network")
    cause = "padding behind the source" if by_padding >= by_neighbours else "a longer sentence in the same batch"
    return Finding(
        "padding",
        "fault",
        LocalizedText(
            "{cause} changes a sentence's logits, by {worst:.2g} of their spread",
            cause=LocalizedText(cause),
            worst=worst,
        ),
        "a sentence means something else in every batch: mend the padding mask (nn/masks.py, data/batch.py)",
        values=values,
        about="network",
    )


def _check_parallel_padding(updater: Updater, rows: Sequence[Example], together: Batch) -> Finding:
    """The same by the loss of each sentence, because the logits of a canvas depend on its size."""
    before = _compute_sentence_losses(updater, together)
    padded = _compute_sentence_losses(updater, _add_padding(together))
    alone = torch.cat([_compute_sentence_losses(updater, make_batch([row], updater.network)) for row in rows])
    fits = before != float("inf")  # NaN is a fault
    changes = [((other - before).abs() / before.clamp(min=1))[fits] for other in (padded, alone)]
    by_padding, by_neighbours = (float(each.nan_to_num(float("inf")).max()) if fits.any() else 0.0 for each in changes)
    values = {"by_padding": by_padding, "by_neighbours": by_neighbours}
    worst = max(by_padding, by_neighbours)
    if worst <= TOLERANCE[updater.precision]:
        found = LocalizedText(
            "no sentence's loss depends on padding or on other sentences (largest change {worst:.1g})", worst=worst
        )
        return Finding("padding", "ok", found, values=values, about="network")
    found = LocalizedText(
        "padding or another sentence in the batch changes a sentence's loss, by {worst:.2g} of it", worst=worst
    )
    advice = "a sentence means something else in every batch: mend the padding mask (nn/masks.py, model/parallel.py)"
    return Finding("padding", "fault", found, advice, values=values, about="network")


@torch.no_grad()
def _compute_sentence_losses(updater: Updater, batch: Batch) -> Float[Tensor, " B"]:
    assert isinstance(updater.network, ParallelTransformer)
    batch = batch.to(updater.device)
    with updater.autocast():
        return sentence_losses(updater.network, batch.source_ids, batch.source_mask, batch.labels).float()


def _compute_seeded_logits(updater: Updater, batch: Batch) -> Float[Tensor, "B T V"]:
    torch.manual_seed(0)
    return compute_logits(updater, batch)


def _logit_std(logits: Float[Tensor, "B T V"], batch: Batch) -> float:
    return max(float(logits[_token_mask(batch)].std()), 1e-12)


def _token_mask(batch: Batch) -> Bool[Tensor, "B T"]:
    return batch.labels != PAD


def _replace_after(ids: Int[Tensor, "B T"], position: int, vocab_size: int) -> Int[Tensor, "B T"]:
    """Replace every token after the position by the next token of the vocabulary, without control tokens."""
    first = EOS + 1
    others = first + (ids - first + 1).clamp(min=0) % max(1, vocab_size - first)
    behind = torch.arange(ids.size(1)) > position
    return torch.where(behind[None, :], others, ids)


def _shorten_rows(pairs: Sequence[Example]) -> list[Example]:
    """Make each row shorter than the previous one: similar lengths in a batch could hide a fault."""
    rows = [pairs[0]]
    for pair in (*pairs[1:], pairs[0]):
        source, target = len(rows[-1].source) - 1, len(rows[-1].target) - 1
        rows.append(Example(pair.source[: max(1, source)], pair.target[: max(1, target)]))
    return rows


def _add_padding(batch: Batch) -> Batch:
    if not batch.source_ids.size(1):  # a decoder-only network has no source to pad
        return batch
    mask = torch.ones_like(batch.source_ids, dtype=torch.bool) if batch.source_mask is None else batch.source_mask
    more = batch.source_ids.new_full((len(mask), _EXTRA_PADDING), PAD)
    return replace(
        batch, source_ids=torch.cat((batch.source_ids, more), dim=1), source_mask=torch.cat((mask, more != PAD), dim=1)
    )


def check_tying(network: Transformer, data: PreparedData) -> Finding:
    """Check that embedding tables match their vocabularies and are shared according to `model.tie`."""
    tie, joint = network.config.tie, _has_one_vocabulary(data)
    faults = [*_find_wrong_sizes(network, data), *_find_wrong_sharing(network)]
    if network.config.ties_inputs and not joint:
        faults.append(
            LocalizedText("model.tie is {tie}, but source and target have vocabularies of their own", tie=tie)
        )
    if faults:
        advice = "set tokenizer.joint to true, or model.tie to output; prepared data must be that of the network"
        return Finding("tying", "fault", join_texts(faults, "; "), advice, about="network")
    found = LocalizedText("one vocabulary, model.tie {tie}" if joint else "two vocabularies, model.tie {tie}", tie=tie)
    if joint and tie in ("none", "output") and network.source is not None:
        saved = network.target.tokens.weight.numel() * (2 if tie == "none" else 1)
        advice = "one table for both sides (model.tie all) usually does as well"
        found += LocalizedText(": {saved:,} parameters more than with one table", saved=saved)
        return Finding("tying", "note", found, advice, values={"parameters": saved}, about="network")
    return Finding("tying", "ok", found, about="network")


def _has_one_vocabulary(data: PreparedData) -> bool:
    """Return whether equal ids are equal tokens. An imported model can have two tokenizers with one vocabulary."""
    source, target = data.source_tokenizer, data.target_tokenizer
    if isinstance(source, VocabularyTokenizer) and isinstance(target, VocabularyTokenizer):
        return source.entries == target.entries
    return source is target


def check_shift(batches: Sequence[Batch], data: PreparedData, resegmented: bool) -> Finding:
    """Check that labels are the target shifted by one, from BOS to EOS, and that the ids match the text.

    With `resegmented` (BPE-dropout), ids differ from those in the shards, so the decoded texts are compared.
    """
    faults = [
        fault
        for batch in batches
        for fault in (*_find_shift_faults(batch), *_find_mismatched_rows(batch, data, resegmented))
    ]
    faults += _find_misread_texts(data)
    return _report_shift(
        batches,
        faults,
        "labels of {count:,} rows are the target one step ahead, and the ids those of the text",
        "{faults:,} of {count:,} rows are not a target and the same one step ahead",
    )


def check_window_shift(batches: Sequence[Batch], data: PreparedData) -> Finding:
    """Check that labels are the window, and inputs are BOS and the window without its last token."""
    faults = [fault for batch in batches for fault in _find_window_faults(batch, data)]
    return _report_shift(
        batches,
        faults,
        "labels of {count:,} windows are the text one step ahead",
        "{faults:,} of {count:,} windows are not the text and the same one step ahead",
    )


def _report_shift(batches: Sequence[Batch], faults: Sequence[str], right: str, wrong: str) -> Finding:
    """Return the finding. `right` and `wrong` are the texts without faults and with faults."""
    count = sum(len(batch.labels) for batch in batches)
    if not faults:
        found = LocalizedText(right, count=count)
        return Finding("shift", "ok", found, values={"rows": count}, about="network")
    return Finding(
        "shift",
        "fault",
        LocalizedText(wrong, faults=len(faults), count=count),
        "the network would learn something else than to go on: mend how batches are made (data/batch.py)",
        tuple(faults[:MAX_EXAMPLES]),
        {"rows": count, "faults": len(faults)},
        "network",
    )


def _find_wrong_sizes(network: Transformer, data: PreparedData) -> Iterator[str]:
    target = data.target_tokenizer.vocab_size
    sizes = [("target table", network.target.tokens.num_embeddings, target)]
    sizes.append(("output", network.output.out_features, target))
    if network.source is not None:
        sizes.append(("source table", network.source.tokens.num_embeddings, data.source_tokenizer.vocab_size))
    for name, rows, size in sizes:
        if rows != size:
            name = LocalizedText(name)
            yield LocalizedText(
                "the {name} has {rows:,} rows for a vocabulary of {size:,}", name=name, rows=rows, size=size
            )


def _find_wrong_sharing(network: Transformer) -> Iterator[str]:
    table, config = network.target.tokens.weight, network.config
    tie, shared = config.tie, [("output", network.output.weight is table, config.ties_output)]
    if network.source is not None:
        shared.append(("source table", network.source.tokens.weight is table, config.ties_inputs))
    for name, is_shared, meant in shared:
        if is_shared != meant:
            right = "the {name} shares the target table, against model.tie {tie}"
            wrong = "the {name} does not share the target table, against model.tie {tie}"
            yield LocalizedText(right if is_shared else wrong, name=LocalizedText(name), tie=tie)


def _find_shift_faults(batch: Batch) -> Iterator[str]:
    """Yield at most one fault per row."""
    rows = zip(batch.source_ids.tolist(), batch.target_ids.tolist(), batch.labels.tolist(), strict=True)
    for number, (source, inputs, labels) in enumerate(rows):
        end = labels.index(EOS) if EOS in labels else -1
        if inputs[0] != BOS:
            fault = LocalizedText("the input begins with {token}, not bos", token=inputs[0])
        elif end < 0 or any(each != PAD for each in labels[end + 1 :]):
            fault = LocalizedText("the labels do not end with eos")
        elif inputs[: end + 1] == labels[: end + 1]:
            fault = LocalizedText("the input holds each label itself")
        elif inputs[1 : end + 1] != labels[:end]:
            fault = _name_wrong_labels(labels, inputs)
        elif EOS not in source or any(each != PAD for each in source[source.index(EOS) + 1 :]):
            fault = LocalizedText("the source does not end with eos")
        else:
            continue
        yield LocalizedText("{row}: {fault}", row=_name_row(batch, number), fault=fault)


def _find_mismatched_rows(batch: Batch, data: PreparedData, resegmented: bool) -> Iterator[str]:
    """Yield rows that differ from the training pair with their number."""
    tokenizers = (data.source_tokenizer, data.target_tokenizer)
    sides = zip(batch.source_ids.tolist(), batch.labels.tolist(), strict=True)
    for row, (number, ids) in enumerate(zip(batch.numbers, sides, strict=False)):
        pair = read_pair(data, number)
        stored_ids = (pair.source, pair.target)
        for name, tokenizer, found, stored in zip(("source", "target"), tokenizers, ids, stored_ids, strict=True):
            plain = _strip_pad_and_eos(found)
            same = tokenizer.decode(plain) == tokenizer.decode(stored) if resegmented else plain == list(stored)
            if not same:
                yield LocalizedText(
                    "{row}: the {side} is not that of the pair in the prepared data",
                    row=_name_row(batch, row),
                    side=LocalizedText(name),
                )
                break


def _find_window_faults(batch: Batch, data: PreparedData) -> Iterator[str]:
    rows = zip(batch.numbers, batch.target_ids.tolist(), batch.labels.tolist(), strict=True)
    for number, inputs, labels in rows:
        window = read_pair(data, number).target
        tokens = [each for each in labels if each != PAD]
        if tokens != list(window):
            yield LocalizedText("window {number:,}: the labels are not that of the prepared data", number=number + 1)
        elif inputs[: len(tokens)] != [BOS, *tokens[:-1]]:
            row = LocalizedText("window {number:,}", number=number + 1)
            yield LocalizedText("{row}: {fault}", row=row, fault=_name_wrong_labels(labels, inputs))


def _find_misread_texts(data: PreparedData) -> Iterator[str]:
    """Yield validation texts that change when collated and decoded. Texts with unknown tokens are skipped.

    So are texts of imported tokenizers, which normalise characters and give language labels no text.
    """
    tokenizers = (data.source_tokenizer, data.target_tokenizer)
    texts = data.valid[:_VALIDATION_PAIRS]
    pairs = [Example(tokenizers[0].encode(source), tokenizers[1].encode(target)) for source, target in texts]
    batch = collate(pairs) if pairs else None
    for number, (source, target) in enumerate(texts):
        assert batch is not None
        sides = (batch.source_ids[number].tolist(), batch.labels[number].tolist())
        for tokenizer, text, ids in zip(tokenizers, (source, target), sides, strict=True):
            plain = _strip_pad_and_eos(ids)
            # Compare by words, because some tokenizers normalise white space and have no line breaks. In Chinese
            # without spaces, a tokenizer of words finds words and puts spaces between them.
            is_exact = UNK not in plain and not isinstance(tokenizer, ImportedVocabulary)
            read_back = tokenizer.decode(plain).split()
            if (
                is_exact
                and read_back != text.split()
                and not (any(map(is_unspaced, text)) and "".join(read_back) == "".join(text.split()))
            ):
                yield LocalizedText(
                    "validation pair {number}: read back it is not {text!r}", number=number + 1, text=cut_line(text)
                )


def _name_wrong_labels(labels: Sequence[int], inputs: Sequence[int]) -> LocalizedText:
    text = "the labels {labels} are not the input {inputs} one step ahead"
    return LocalizedText(text, labels=labels[:6], inputs=inputs[:6])


def _name_row(batch: Batch, row: int) -> LocalizedText:
    if row < len(batch.numbers):
        return LocalizedText("pair {number:,}", number=batch.numbers[row] + 1)
    return LocalizedText("row {number}", number=row + 1)


@contextmanager
def preserve_state(updater: Updater) -> Iterator[None]:
    """Restore the random state and the training mode, so that the run continues unchanged."""
    training = updater.network.training
    with torch.random.fork_rng([updater.device] if updater.device.type == "cuda" else []):
        try:
            yield
        finally:
            updater.network.train(training)


def take_batches(stream: BatchStream) -> list[Batch]:
    """Return the first batches of the stream."""
    with closing(stream.batches()) as batches:
        return [placed.batch for placed in islice(batches, _MAX_BATCHES)]


def pick_pairs(batches: Sequence[Batch], network: Transformer) -> list[Example]:
    """Return the first tokens of a few long pairs with different sources."""
    config = network.config
    most = (
        min(MAX_TOKENS_PER_SIDE, max(1, config.max_length - SPARE_POSITIONS))
        if config.positions == "learned"
        else MAX_TOKENS_PER_SIDE
    )
    found: dict[tuple[int, ...], Example] = {}
    for batch in batches:
        for source, target in zip(batch.source_ids.tolist(), batch.labels.tolist(), strict=True):
            pair = Example(_strip_pad_and_eos(source)[:most], _strip_pad_and_eos(target)[:most])
            found.setdefault(tuple(pair.source or pair.target), pair)
    return sorted(found.values(), key=lambda pair: -len(pair.source) - len(pair.target))[:MAX_PAIRS_PER_CHECK]


def make_batch(pairs: Sequence[Example], network: Transformer) -> Batch:
    """Collate the pairs, without sources for a decoder-only network."""
    batch = collate(pairs)
    if not network.continues_text:
        return batch
    return replace(batch, source_ids=batch.source_ids[:, :0], source_mask=None, source_tokens=0)


@torch.no_grad()
def compute_logits(updater: Updater, batch: Batch) -> Float[Tensor, "B T V"]:
    """Compute logits in the run's precision, on its device."""
    batch = batch.to(updater.device)
    with updater.autocast():
        logits: Tensor = updater.network(batch.source_ids, batch.target_ids, batch.source_mask)
    return logits.float()


def _strip_pad_and_eos(ids: Sequence[int]) -> list[int]:
    return [each for each in ids if each not in (PAD, EOS)]

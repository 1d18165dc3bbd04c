"""The systems a certificate compares: attendo, ONNX Runtime, CTranslate2 and transformers."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attendo.data.batch import collate_sources
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import CachedEngine, Engine
from attendo.decode.presets import preset
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.search import Seq2SeqNetwork
from attendo.errors import LocalizedText, ModelError, UsageError, cut_line
from attendo.interop.certificate import SystemOutput
from attendo.interop.errors import MAX_ERROR_CHARS
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.huggingface.load_pretrained import open_model
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, name_to_id
from attendo.interop.onnx.engine import OnnxEngine
from attendo.model.transformer import Transformer
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD
from attendo.text.tokenizer import end_source
from attendo.text_model.generation import make_rules, make_strategy

_BATCH_TOKENS = 4096  # tokens per batch


class AttendoSystem:
    """attendo's search on any network, with the beam semantics of the other system.

    `preset_name` is a name for `preset`; None: attendo's defaults. `target_prefix` starts every output and is removed.
    """

    def __init__(
        self,
        name: str,
        network: Seq2SeqNetwork,
        engine: Engine,
        preset_name: str | None,
        target_prefix: Sequence[int] = (),
    ) -> None:
        self.name, self._network, self._engine = name, network, engine
        self._preset_name, self._prefix = preset_name, tuple(target_prefix)

    @torch.no_grad()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor:
        device = self._network.device
        ids = torch.tensor([[BOS, *self._prefix, *target]], device=device)
        memory = self._network.encode(collate_sources([source])[0].to(device), None)
        logits, _ = self._network.step(ids, self._network.start(memory))
        return logits[0, len(self._prefix) :]

    def score_tokens(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the log-probability of each token of each target, and of eos."""
        scores = []
        for source, target in zip(sources, targets, strict=True):
            log_probs = self.logits(source, target).float().cpu().log_softmax(-1)
            scores.append(log_probs.gather(1, torch.tensor([[*target, EOS]]).T)[:, 0])
        return scores

    def generate(self, sources: Sequence[Sequence[int]], beam: int, max_length: int) -> list[SystemOutput]:
        given = {"beam": beam, "at_limit": "any"}
        config = preset(self._preset_name, given) if self._preset_name else GenerationConfig(**given)
        max_length, least = max_length + len(self._prefix), config.min_length_extra
        if least:  # it excludes the prefix, DecodeRequest includes it
            least += len(self._prefix)
        requests = [
            DecodeRequest(number, tuple(source), max_length - 1, least, self._prefix)
            for number, source in enumerate(sources)
        ]
        rules = make_rules(config, prefix=bool(self._prefix), min_length=least > 0)
        found = {
            number: answer
            for some in self._engine.generate(requests, make_strategy(config, 1), rules)
            for number, answer in self._best_outputs(some)
        }
        return [found[number] for number in range(len(sources))]

    def _best_outputs(self, batch: FinishedBatch) -> Iterator[tuple[int, SystemOutput]]:
        """Yield the first hypothesis of each request, which is the best."""
        found = batch.hypotheses
        rows = zip(found.ids[:: found.width].tolist(), found.value[:: found.width].tolist(), strict=True)
        for request, (ids, value) in zip(batch.requests, rows, strict=True):
            text_ids = tuple(each for each in ids if each not in (PAD, BOS, EOS))
            yield request.request_id, SystemOutput(text_ids[len(self._prefix) :], value)


class TorchSystem(AttendoSystem):
    """attendo's search on a torch network."""

    def __init__(self, network: Transformer, preset_name: str | None, target_prefix: Sequence[int] = ()) -> None:
        name = LocalizedText("attendo, searching like {system}", system=preset_name) if preset_name else "attendo"
        super().__init__(name, network.eval(), CachedEngine(network, _BATCH_TOKENS), preset_name, target_prefix)


class OnnxSystem(AttendoSystem):
    """attendo's search on an exported folder run by ONNX Runtime."""

    def __init__(self, folder: Path, target_prefix: Sequence[int] = ()) -> None:
        import onnxruntime

        from attendo.interop.onnx.folder import open_onnx

        model_folder = open_onnx(folder)
        name = _name_system("ONNX Runtime", onnxruntime.__version__, model_folder.precision)
        engine = OnnxEngine(model_folder.network, _BATCH_TOKENS)
        super().__init__(name, model_folder.network, engine, None, target_prefix)


class CTranslate2System:
    """Folder run by `ctranslate2.Translator`. `source` and `target` are token names by attendo's ids."""

    def __init__(
        self, folder: Path, source: Sequence[str], target: Sequence[str], target_prefix: Sequence[int] = ()
    ) -> None:
        import ctranslate2

        before = ctranslate2.get_log_level()
        ctranslate2.set_log_level(logging.ERROR)  # no precision warning: `name` contains the compute type
        self._translator = ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads())
        ctranslate2.set_log_level(before)
        self.name = _name_system("CTranslate2", ctranslate2.__version__, self._translator.compute_type)
        self._source, self._target, self._prefix = source, target, [target[each] for each in target_prefix]
        self._numbers = name_to_id(target)

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
        """Return logits. CTranslate2 returns them for each prefix token and for the next token."""
        prefix = [*self._prefix, *(self._target[each] for each in target)]
        (result,) = self._translator.translate_batch(
            [[self._source[each] for each in source]],
            target_prefix=[prefix],
            beam_size=1,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=len(prefix) + 1,
            return_logits_vocab=True,
        )
        rows = [np.array(row, dtype=np.float32) for row in result.logits[0]]
        return torch.from_numpy(np.stack(rows))[len(self._prefix) :]

    def generate(self, sources: Sequence[Sequence[int]], beam: int, max_length: int) -> list[SystemOutput]:
        max_length += len(self._prefix)
        results = self._translator.translate_batch(
            [[self._source[each] for each in source] for source in sources],
            target_prefix=[self._prefix] * len(sources) if self._prefix else None,
            beam_size=beam,
            max_input_length=0,
            min_decoding_length=1 + len(self._prefix),
            max_decoding_length=max_length,
            suppress_sequences=[[CONTROL_PIECES[PAD]], [CONTROL_PIECES[BOS]]],
            return_scores=True,
        )
        answers = []
        for each in results:
            ids = tuple(self._numbers[piece] for piece in each.hypotheses[0])
            mean, length = each.scores[0], min(len(ids) + 1, max_length)
            answers.append(SystemOutput(ids[len(self._prefix) :], mean * length))
        return answers


class TransformersSystem:
    """Model of transformers. `orders` convert the ids. `target_prefix` starts every output and is removed."""

    def __init__(
        self, model: Any, orders: tuple[VocabularyPermutation, VocabularyPermutation], target_prefix: Sequence[int] = ()
    ) -> None:
        from transformers import GenerationConfig

        model.generation_config = GenerationConfig()  # every call passes all settings
        self._model, self._prefix = model.eval(), list(target_prefix)
        self._source, self._target = orders
        self._pad, self._start, self._eos = self._target.to_theirs((PAD, BOS, EOS))
        # The tokens that attendo's search suppresses, except copies: the start token may be generated.
        self._suppress_tokens = self._target.to_theirs(each for each in (PAD, BOS) if each not in self._target.copies)

    @classmethod
    def from_import(cls, imported: ImportedModel, target_prefix: Sequence[int] = ()) -> "TransformersSystem":
        """Load the original model of an import."""
        return cls(_load_original(imported), (imported.source, imported.target), target_prefix)

    @property
    def name(self) -> str:
        import transformers

        return f"transformers {transformers.__version__}"

    @torch.no_grad()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor:
        ids, mask = self._pad_sources([source])
        inputs = [self._start, *self._target.to_theirs([*self._prefix, *target])]
        logits = self._model(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.tensor([inputs])).logits[0]
        return logits[len(self._prefix) :, list(self._target.rows)]

    def generate(self, sources: Sequence[Sequence[int]], beam: int, max_length: int) -> list[SystemOutput]:
        ids, mask = self._pad_sources(sources)
        output = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=self._generation_config(beam, max_length + len(self._prefix)),
            logits_processor=[PrefixLogitsProcessor(self._target.to_theirs(self._prefix))],
        )
        answers = [self._strip_output(row[1:]) for row in output.sequences.tolist()]
        if beam == 1:
            return [SystemOutput(each, None) for each in answers]
        lengths = [min(len(each) + 1, max_length) + len(self._prefix) for each in answers]
        means = output.sequences_scores.tolist()
        return [SystemOutput(ids, mean * length) for ids, mean, length in zip(answers, means, lengths, strict=True)]

    def _pad_sources(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        rows = [self._source.to_theirs(end_source(source)) for source in sources]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[self._pad] * (width - len(row))] for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        return ids, (torch.arange(width) < lengths[:, None]).long()

    def _generation_config(self, beam: int, max_new_tokens: int) -> Any:
        """Return the settings of a plain search, without the defaults of the model's files."""
        from transformers import GenerationConfig

        shape: dict[str, Any] = {"length_penalty": 1.0, "early_stopping": False} if beam > 1 else {}
        return GenerationConfig(
            decoder_start_token_id=self._start,
            eos_token_id=self._eos,
            pad_token_id=self._pad,
            suppress_tokens=self._suppress_tokens or None,
            do_sample=False,
            num_beams=beam,
            max_new_tokens=max_new_tokens,
            return_dict_in_generate=True,
            output_scores=True,
            **shape,
        )

    def _strip_output(self, row: Sequence[int]) -> tuple[int, ...]:
        """Return attendo's ids up to eos, without the prefix."""
        ends = row.index(self._eos) if self._eos in row else len(row)
        return tuple(self._target.to_ours(each for each in row[len(self._prefix) : ends] if each != self._pad))


@dataclass(frozen=True)
class PrefixLogitsProcessor:
    """Forces the prefix at the first positions. Its tokens keep their log-probability, as in attendo."""

    prefix: Sequence[int]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        position = input_ids.size(1) - 1
        if position >= len(self.prefix):
            return scores
        others = torch.arange(scores.size(1)) != self.prefix[position]
        return scores.masked_fill(others, float("-inf"))


def _load_original(imported: ImportedModel) -> Any:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise UsageError("import_proof_needs_transformers") from None
    try:
        return open_model(imported.folder)
    except Exception as error:  # transformers reads more settings and raises errors of many classes
        reason, kind = cut_line(str(error), MAX_ERROR_CHARS), type(error).__name__
        raise ModelError(
            "transformers_load_failed", path=imported.folder.path, error_type=kind, reason=reason
        ) from None


def _name_system(system: str, version: str, precision: str) -> LocalizedText:
    return LocalizedText("{system} {version} in {precision}", system=system, version=version, precision=precision)

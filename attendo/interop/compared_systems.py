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
from attendo.decode.presets import like
from attendo.decode.requests import Answers, Request
from attendo.errors import ModelError, UsageError
from attendo.interop.certificate import Answer
from attendo.interop.huggingface.imported import Imported
from attendo.interop.huggingface.load_pretrained import open_model
from attendo.interop.huggingface.vocabulary import Rearranged
from attendo.interop.onnx.engine import OnnxEngine
from attendo.interop.onnx.session import StepByStep
from attendo.model.transformer import Transformer
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD
from attendo.text_model.search_setup import Reader, rules_of, strategy_of

_POSITIONS = 4096  # of a batch
_SHOWN = 200  # characters of their error


class OurSearch:
    """attendo's own search through any network, with the meaning that the other side gives to a beam.

    `meaning` is a name for `like`; None: our own. `target_prefix` is what every answer begins with, and is not told.
    """

    def __init__(
        self, name: str, reader: Reader, engine: Engine, meaning: str | None, target_prefix: Sequence[int] = ()
    ) -> None:
        self.name, self._reader, self._engine = name, reader, engine
        self._meaning, self._prefix = meaning, tuple(target_prefix)

    @torch.no_grad()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor:
        ids = torch.tensor([[BOS, *self._prefix, *target]], device=self.device)
        memory = self._reader.encode(collate_sources([source])[0].to(self.device), None)
        logits, _ = self._reader.step(ids, self._reader.start(memory))
        return logits[0, len(self._prefix) :]

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def answers(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[Answer]:
        given = {"beam": beam, "at_limit": "free"}
        config = like(self._meaning, given) if self._meaning else GenerationConfig(**given)
        limit, least = limit + len(self._prefix), config.min_length_extra
        if least:  # which is what must come behind the prefix
            least += len(self._prefix)
        requests = [
            Request(number, tuple(source), limit - 1, least, self._prefix) for number, source in enumerate(sources)
        ]
        rules = rules_of(config, prefix=bool(self._prefix), least=least > 0)
        found = {
            number: answer
            for some in self._engine.answers(requests, strategy_of(config, 1), rules)
            for number, answer in self._best(some)
        }
        return [found[number] for number in range(len(sources))]

    def _best(self, answers: Answers) -> Iterator[tuple[int, Answer]]:
        """The first hypothesis of each request, which is the best."""
        found = answers.hypotheses
        rows = zip(found.ids[:: found.width].tolist(), found.value[:: found.width].tolist(), strict=True)
        for request, (ids, value) in zip(answers.requests, rows, strict=True):
            yield request.number, Answer(_spoken(ids)[len(self._prefix) :], value)


class OurNetwork(OurSearch):
    """One that torch computes."""

    def __init__(self, network: Transformer, meaning: str | None, target_prefix: Sequence[int] = ()) -> None:
        name = f"attendo, searching like {meaning}" if meaning else "attendo"
        super().__init__(name, network.eval(), CachedEngine(network, _POSITIONS), meaning, target_prefix)
        self._network = network

    @property
    def device(self) -> torch.device:
        return self._network.device


class OnnxParty(OurSearch):
    """A folder that ONNX Runtime computes."""

    def __init__(self, folder: Path, target_prefix: Sequence[int] = ()) -> None:
        import onnxruntime

        from attendo.interop.onnx.folder import open_onnx

        opened = open_onnx(folder)
        name = f"ONNX Runtime {onnxruntime.__version__} in {opened.precision}"
        engine = OnnxEngine(opened.network, _POSITIONS)
        super().__init__(name, StepByStep(opened.network), engine, None, target_prefix)


class CTranslate2Party:
    """A folder that a `ctranslate2.Translator` loads; `source` and `target` name our ids, `prefix` begins answers."""

    def __init__(
        self, folder: Path, source: Sequence[str], target: Sequence[str], target_prefix: Sequence[int] = ()
    ) -> None:
        import ctranslate2

        before = ctranslate2.get_log_level()
        ctranslate2.set_log_level(logging.ERROR)  # that it computes in another precision is told by the name
        self._translator = ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads())
        ctranslate2.set_log_level(before)
        self.name = f"CTranslate2 {ctranslate2.__version__} in {self._translator.compute_type}"
        self._source, self._target, self._prefix = source, target, [target[each] for each in target_prefix]
        self._numbers = {piece: number for number, piece in enumerate(target)}

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
        """It tells them for each token of a prefix, and for the one behind it."""
        prefix = [*self._prefix, *(self._target[each] for each in target)]
        (told,) = self._translator.translate_batch(
            [[self._source[each] for each in source]],
            target_prefix=[prefix],
            beam_size=1,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=len(prefix) + 1,
            return_logits_vocab=True,
        )
        rows = [np.array(row, dtype=np.float32) for row in told.logits[0]]
        return torch.from_numpy(np.stack(rows))[len(self._prefix) :]

    def answers(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[Answer]:
        limit += len(self._prefix)
        told = self._translator.translate_batch(
            [[self._source[each] for each in source] for source in sources],
            target_prefix=[self._prefix] * len(sources) if self._prefix else None,
            beam_size=beam,
            max_input_length=0,
            min_decoding_length=1 + len(self._prefix),
            max_decoding_length=limit,
            suppress_sequences=[[CONTROL_PIECES[PAD]], [CONTROL_PIECES[BOS]]],
            return_scores=True,
        )
        answers = []
        for each in told:
            ids = tuple(self._numbers[piece] for piece in each.hypotheses[0])
            score = _multiplied(each.scores[0], min(len(ids) + 1, limit))
            answers.append(Answer(ids[len(self._prefix) :], score))
        return answers


def _spoken(ids: Sequence[int]) -> tuple[int, ...]:
    """Without control tokens."""
    return tuple(each for each in ids if each not in (PAD, BOS, EOS))


def _multiplied(score: float, length: int) -> float:
    """A mean as the sum it was made of."""
    return score * length


class TransformersParty:
    """It is asked in its own ids, of which `orders` tell. `target_prefix` begins every answer and is no part of it."""

    def __init__(self, model: Any, orders: tuple[Rearranged, Rearranged], target_prefix: Sequence[int] = ()) -> None:
        from transformers import GenerationConfig

        model.generation_config = GenerationConfig()  # a call says all
        self._model, self._prefix = model.eval(), list(target_prefix)
        self._source, self._target = orders
        self._pad, self._start, self._eos = self._target.theirs((PAD, BOS, EOS))
        # What our search never says, as far as they have it; the token that answers begin from they may say.
        self._silent = self._target.theirs(each for each in (PAD, BOS) if each not in self._target.copies)

    @classmethod
    def of(cls, imported: Imported, target_prefix: Sequence[int] = ()) -> "TransformersParty":
        """The model that an import was made from."""
        return cls(_opened(imported), (imported.source, imported.target), target_prefix)

    @property
    def name(self) -> str:
        import transformers

        return f"transformers {transformers.__version__}"

    @torch.no_grad()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor:
        ids, mask = self._sources([source])
        begun = [self._start, *self._target.theirs([*self._prefix, *target])]
        logits = self._model(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.tensor([begun])).logits[0]
        return logits[len(self._prefix) :, list(self._target.rows)]

    def answers(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[Answer]:
        ids, mask = self._sources(sources)
        said = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=self._settings(beam, limit + len(self._prefix)),
            logits_processor=[Begin(self._target.theirs(self._prefix))],
        )
        answers = [self._spoken(row[1:]) for row in said.sequences.tolist()]
        if beam == 1:
            return [Answer(each, None) for each in answers]
        lengths = [min(len(each) + 1, limit) + len(self._prefix) for each in answers]
        means = said.sequences_scores.tolist()
        return [Answer(ids, mean * length) for ids, mean, length in zip(answers, means, lengths, strict=True)]

    def _sources(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        rows = [self._source.theirs([*source, EOS]) for source in sources]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[self._pad] * (width - len(row))] for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        return ids, (torch.arange(width) < lengths[:, None]).long()

    def _settings(self, beam: int, most: int) -> Any:
        """A plain search: what the model's own files say of it would come on top."""
        from transformers import GenerationConfig

        shape: dict[str, Any] = {"length_penalty": 1.0, "early_stopping": False} if beam > 1 else {}
        return GenerationConfig(
            decoder_start_token_id=self._start,
            eos_token_id=self._eos,
            pad_token_id=self._pad,
            suppress_tokens=self._silent or None,
            do_sample=False,
            num_beams=beam,
            max_new_tokens=most,
            return_dict_in_generate=True,
            output_scores=True,
            **shape,
        )

    def _spoken(self, row: Sequence[int]) -> tuple[int, ...]:
        """Up to the end, and without the prefix."""
        ends = row.index(self._eos) if self._eos in row else len(row)
        return tuple(self._target.ours(each for each in row[len(self._prefix) : ends] if each != self._pad))


@dataclass(frozen=True)
class Begin:
    """At the first places nothing but the prefix; its tokens keep their probability, as with us."""

    prefix: Sequence[int]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        place = input_ids.size(1) - 1
        if place >= len(self.prefix):
            return scores
        others = torch.arange(scores.size(1)) != self.prefix[place]
        return scores.masked_fill(others, float("-inf"))


def _opened(imported: Imported) -> Any:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise UsageError("import_proof_needs_transformers") from None
    try:
        return open_model(imported.folder)
    except Exception as error:  # it reads more of config.json than we do, and has errors of every kind
        reason = " ".join(str(error).split())[:_SHOWN]
        raise ModelError(
            "transformers_load_failed", path=imported.folder.path, error_type=type(error).__name__, reason=reason
        ) from None

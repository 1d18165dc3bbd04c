"""Systems as parties to a certificate: attendo itself, ONNX Runtime, CTranslate2."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attendo.data.batch import collate_sources
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import CachedEngine, Engine
from attendo.decode.likes import like
from attendo.decode.requests import Answers, Request
from attendo.interop.certificate import Answer
from attendo.interop.onnx_engine import OnnxEngine
from attendo.interop.step_by_step import StepByStep
from attendo.model.transformer import Transformer
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD
from attendo.text_model.choices import rules_of, strategy_of
from attendo.text_model.networks import Reader

_POSITIONS = 4096  # of a batch


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

        from attendo.interop.onnx_files import open_onnx

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

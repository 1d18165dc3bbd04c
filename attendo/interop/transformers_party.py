"""A model of transformers as a party to the certificate: one that was exported, or that an import was made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attendo.errors import ModelError, UsageError
from attendo.interop.certificate import Answer
from attendo.interop.imported import Imported
from attendo.interop.rearranged import Rearranged
from attendo.interop.transformers_loading import open_model
from attendo.text import BOS, EOS, PAD

_SHOWN = 200  # characters of their error


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

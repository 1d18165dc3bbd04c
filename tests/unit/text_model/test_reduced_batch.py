"""If memory runs out, the batch is reduced and the answers stay the same."""

import gc
import warnings
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import pytest
import torch
from error_codes import fragment
from tiny import Command
from varied_models import sentences, varied_model

import attendo.decode.engines
import attendo.text_model.alignment
import attendo.text_model.scoring
from attendo.decode.engines import ReducedBatchWarning
from attendo.decode.static_batch import StaticBatch
from attendo.text_model import TextModel

OOM_MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has 1.50 GiB of which 0 are free. Process 5 has much"
)


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """A full garbage collection over the objects of all tests takes 0.5 s each time memory runs out."""
    gc.freeze()
    yield
    gc.unfreeze()


class Memory:
    """Simulates memory for `rows` rows of a static batch, which runs out once after `steps` steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int, steps: int | None = None) -> None:
        self.batch_sizes: list[int] = []
        memory, left, error_type = self, steps, torch.OutOfMemoryError

        class LimitedBatch(StaticBatch):
            def __init__(self, network: Any, strategy: Any, rules: Any, shape: Any, compiled: bool = False) -> None:
                memory.batch_sizes.append(shape.count)
                if shape.count * strategy.width > rows:
                    raise error_type(OOM_MESSAGE)
                super().__init__(network, strategy, rules, shape, compiled)

            def step(self, waiting: Any) -> Any:
                nonlocal left
                if left is not None and (left := left - 1) < 0:
                    left = None
                    raise error_type(OOM_MESSAGE)
                return super().step(waiting)

        monkeypatch.setattr(attendo.decode.engines, "StaticBatch", LimitedBatch)


def generate_hypotheses(model: TextModel, **options: Any) -> list[tuple[Any, ...]]:
    return [(each.ids, each.text) for result in model.generate(sentences(20), **options) for each in result.hypotheses]


OPTIONS: list[dict[str, Any]] = [{}, {"beam": 4, "n_best": 2}, {"sample": True, "n_best": 3, "seed": 5}]


@pytest.mark.short(1)
@pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "beam", "samples"])
def test_answers_are_the_same_with_a_reduced_batch(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, settings = varied_model(), {"engine": "fast", "batch_tokens": 512, **options}
    expected = generate_hypotheses(model, **settings)
    memory = Memory(monkeypatch, rows=8)
    with pytest.warns(ReducedBatchWarning, match=fragment("batch_tokens_reduced", wanted=512)):
        assert generate_hypotheses(varied_model(), **settings) == expected
    assert memory.batch_sizes[0] == memory.batch_sizes[1], "cached batches are released first"
    assert memory.batch_sizes[-1] < memory.batch_sizes[0]


@pytest.mark.slow
def test_answers_finished_before_memory_ran_out_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two slots, some sentences are finished at step 12 and some are not."""
    settings: dict[str, Any] = {"engine": "fast", "batch_tokens": 32}
    expected = generate_hypotheses(varied_model(), **settings)
    memory = Memory(monkeypatch, rows=1000, steps=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the same size works on the second attempt
        assert generate_hypotheses(varied_model(), **settings) == expected
    assert len(memory.batch_sizes) == 2


def test_a_reduced_batch_size_is_kept_and_warned_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = varied_model()
    memory = Memory(monkeypatch, rows=8)
    with pytest.warns(ReducedBatchWarning):
        expected = generate_hypotheses(model, engine="fast", batch_tokens=512)
    memory.batch_sizes.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert generate_hypotheses(model, engine="fast", batch_tokens=512) == expected
    assert all(count <= 8 for count in memory.batch_sizes)


def test_if_one_sentence_does_not_fit_the_error_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(monkeypatch, rows=0)
    with pytest.raises(torch.OutOfMemoryError) as failed:
        generate_hypotheses(varied_model(), engine="fast", batch_tokens=64)
    assert failed.value.__notes__ == ["one sentence at a time is too much: take a smaller beam, or the device cpu"]
    assert memory.batch_sizes[-1] == 1


def test_other_errors_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fault(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(attendo.decode.engines, "StaticBatch", fault)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        generate_hypotheses(varied_model(), engine="fast")
    assert calls == [1]


def test_the_command_line_prints_the_error_in_one_line(
    attendo: Command, model_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory(monkeypatch, rows=0)
    result = attendo("generate", str(model_folder), "--engine", "fast", given=b"the cat\n")
    assert result.code == 1
    assert result.errors.splitlines()[-1] == (
        "attendo: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has 1.50 GiB of which 0 are free; "
        "one sentence at a time is too much: take a smaller beam, or the device cpu"
    )


def test_a_failed_request_does_not_reduce_later_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model, settings = varied_model(), {"engine": "fast", "batch_tokens": 512}
    memory = Memory(monkeypatch, rows=0)
    with pytest.raises(torch.OutOfMemoryError):
        model.generate(["the cat"], **settings)
    monkeypatch.undo()
    memory = Memory(monkeypatch, rows=1000)
    generate_hypotheses(model, **settings)
    assert max(memory.batch_sizes) > 8


def test_cached_batches_are_released_before_the_size_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches of this model and of other models are released."""
    model, other = varied_model(), varied_model()
    batches: WeakSet[StaticBatch] = WeakSet()

    class CountedBatch(StaticBatch):
        def __init__(self, network: Any, strategy: Any, rules: Any, shape: Any, compiled: bool = False) -> None:
            if len(batches) >= 2:
                raise torch.OutOfMemoryError(OOM_MESSAGE)
            super().__init__(network, strategy, rules, shape, compiled)
            batches.add(self)

    monkeypatch.setattr(attendo.decode.engines, "StaticBatch", CountedBatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate(["the cat"], engine="fast")
        model.generate(["the cat"], engine="fast", beam=2, coverage_penalty=0.1)
        other.generate(["the cat"], engine="fast")
        other.generate(["the cat"], engine="fast", beam=3)
        model.generate(["the cat"], engine="fast")


@pytest.mark.parametrize("call", ["score", "alignments"])
def test_scores_and_alignments_are_computed_in_smaller_batches(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts, sizes = varied_model(), sentences(20), []

    def compute() -> list[Any]:
        if call == "score":
            return [[each] for each in model.score(texts, texts)]
        found = model.generate(texts, alignments=True)
        return [each.best.alignment.weights.tolist() for each in found if each.best.alignment is not None]

    expected = compute()
    module = attendo.text_model.scoring if call == "score" else attendo.text_model.alignment
    collate = module.collate

    def limited_collate(pairs: Any) -> Any:
        sizes.append(len(pairs))
        if len(pairs) > 3:
            raise torch.OutOfMemoryError(OOM_MESSAGE)
        return collate(pairs)

    monkeypatch.setattr(module, "collate", limited_collate)
    found = compute()
    assert max(sizes) > 3
    assert [torch.tensor(each) for each in found] == [pytest.approx(torch.tensor(each), abs=1e-5) for each in expected]

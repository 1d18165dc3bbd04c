"""Where memory runs out, the same answers come, fewer at a time."""

import gc
import warnings
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import pytest
import torch
from error_codes import fragment
from lively import lively_model, sentences
from tiny import Command

import attendo.decode.engines
import attendo.text_model.alignment
import attendo.text_model.scoring
from attendo.decode.engines import ReducedBatchWarning
from attendo.decode.static_batch import StaticBatch
from attendo.text_model import TextModel

FULL = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has 1.50 GiB of which 0 are free. Process 5 has much"


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """Python looks through all that other tests have left each time memory runs out, which takes half a second."""
    gc.freeze()
    yield
    gc.unfreeze()


class Memory:
    """Room for so many rows of answers in all slots that there are, and before the step at which it is gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int, steps: int | None = None) -> None:
        self.made: list[int] = []
        memory, left, there = self, steps, torch.OutOfMemoryError

        class Few(StaticBatch):
            def __init__(self, network: Any, strategy: Any, rules: Any, shape: Any, compiled: bool = False) -> None:
                memory.made.append(shape.count)
                if shape.count * strategy.width > rows:
                    raise there(FULL)
                super().__init__(network, strategy, rules, shape, compiled)

            def step(self, waiting: Any) -> Any:
                nonlocal left
                if left is not None and (left := left - 1) < 0:
                    left = None
                    raise there(FULL)
                return super().step(waiting)

        monkeypatch.setattr(attendo.decode.engines, "StaticBatch", Few)


def told(model: TextModel, **options: Any) -> list[tuple[Any, ...]]:
    return [(each.ids, each.text) for result in model.generate(sentences(20), **options) for each in result.hypotheses]


OPTIONS: list[dict[str, Any]] = [{}, {"beam": 4, "n_best": 2}, {"sample": True, "n_best": 3, "seed": 5}]


@pytest.mark.short(1)
@pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "beam", "samples"])
def test_answers_are_the_same_where_fewer_fit_side_by_side(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, how = lively_model(), {"engine": "fast", "batch_tokens": 512, **options}
    expected = told(model, **how)
    memory = Memory(monkeypatch, rows=8)
    with pytest.warns(ReducedBatchWarning, match=fragment("batch_tokens_reduced", wanted=512)):
        assert told(lively_model(), **how) == expected
    assert memory.made[0] == memory.made[1], "what was kept goes first"
    assert memory.made[-1] < memory.made[0]


@pytest.mark.slow
def test_what_was_answered_before_memory_ran_out_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two side by side: at the twelfth step some are answered, and some are not."""
    how: dict[str, Any] = {"engine": "fast", "batch_tokens": 32}
    expected = told(lively_model(), **how)
    memory = Memory(monkeypatch, rows=1000, steps=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the same size again is enough
        assert told(lively_model(), **how) == expected
    assert len(memory.made) == 2


def test_less_at_once_stays_so_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lively_model()
    memory = Memory(monkeypatch, rows=8)
    with pytest.warns(ReducedBatchWarning):
        expected = told(model, engine="fast", batch_tokens=512)
    memory.made.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert told(model, engine="fast", batch_tokens=512) == expected
    assert all(count <= 8 for count in memory.made)


def test_where_not_even_one_sentence_fits_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(monkeypatch, rows=0)
    with pytest.raises(torch.OutOfMemoryError) as failed:
        told(lively_model(), engine="fast", batch_tokens=64)
    assert failed.value.__notes__ == ["one sentence at a time is too much: take a smaller beam, or the device cpu"]
    assert memory.made[-1] == 1


def test_other_faults_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fault(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(attendo.decode.engines, "StaticBatch", fault)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        told(lively_model(), engine="fast")
    assert calls == [1]


def test_on_the_command_line_it_is_one_line(
    attendo: Command, model_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory(monkeypatch, rows=0)
    told = attendo("generate", str(model_folder), "--engine", "fast", given=b"the cat\n")
    assert told.code == 1
    assert told.errors.splitlines()[-1] == (
        "attendo: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has 1.50 GiB of which 0 are free; "
        "one sentence at a time is too much: take a smaller beam, or the device cpu"
    )


def test_a_text_that_never_fits_leaves_the_others_as_quick_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model, how = lively_model(), {"engine": "fast", "batch_tokens": 512}
    memory = Memory(monkeypatch, rows=0)
    with pytest.raises(torch.OutOfMemoryError):
        model.generate(["the cat"], **how)
    monkeypatch.undo()
    memory = Memory(monkeypatch, rows=1000)
    told(model, **how)
    assert max(memory.made) > 8


def test_what_other_engines_keep_is_given_up_before_a_size_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same model here; of any other one too."""
    model, other = lively_model(), lively_model()
    held: WeakSet[StaticBatch] = WeakSet()

    class Counted(StaticBatch):
        def __init__(self, network: Any, strategy: Any, rules: Any, shape: Any, compiled: bool = False) -> None:
            if len(held) >= 2:
                raise torch.OutOfMemoryError(FULL)
            super().__init__(network, strategy, rules, shape, compiled)
            held.add(self)

    monkeypatch.setattr(attendo.decode.engines, "StaticBatch", Counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate(["the cat"], engine="fast")
        model.generate(["the cat"], engine="fast", beam=2, coverage_penalty=0.1)
        other.generate(["the cat"], engine="fast")
        other.generate(["the cat"], engine="fast", beam=3)
        model.generate(["the cat"], engine="fast")


@pytest.mark.parametrize("call", ["score", "alignments"])
def test_scores_and_alignments_are_read_in_halves_where_they_must(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts, sizes = lively_model(), sentences(20), []

    def asked() -> list[Any]:
        if call == "score":
            return [[each] for each in model.score(texts, texts)]
        found = model.generate(texts, alignments=True)
        return [each.best.alignment.weights.tolist() for each in found if each.best.alignment is not None]

    expected = asked()
    group = attendo.text_model.scoring if call == "score" else attendo.text_model.alignment
    collate = group.collate

    def few(pairs: Any) -> Any:
        sizes.append(len(pairs))
        if len(pairs) > 3:
            raise torch.OutOfMemoryError(FULL)
        return collate(pairs)

    monkeypatch.setattr(group, "collate", few)
    found = asked()
    assert max(sizes) > 3
    assert [torch.tensor(each) for each in found] == [pytest.approx(torch.tensor(each), abs=1e-5) for each in expected]

"""Baseline systems of the benchmark: equal outputs with equal settings, or a reason why not."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code, message
from tiny import tiny_model

from attendo.bench import systems
from attendo.bench.comparison import BenchmarkPlan, Measurement, SkippedSystem, compare, parse_baselines
from attendo.bench.random_network import make_random_network
from attendo.bench.systems import AttendoRunner, SystemRunner, Workload, prepare_generation
from attendo.decode.engines import CachedEngine
from attendo.errors import ModelError
from attendo.text import EOS

CPU = torch.device("cpu")
WORK = Workload([[5, 6, 7], [8], [9, 10, 11, 12]], beam=1, batch=2, min_tokens=4, max_tokens=4)


@pytest.fixture(scope="module")
def network() -> Any:
    return make_random_network("tiny", 50)


@pytest.fixture(autouse=True)
def _threads_unchanged() -> Iterator[None]:
    """The benchmark must not change the number of threads."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", systems.BASELINES)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_baseline_gives_the_same_outputs_in_order(network: Any, tmp_path: Path, name: str, beam: int) -> None:
    pytest.importorskip(systems.PACKAGES[name])
    work = Workload(WORK.sources, beam, WORK.batch, WORK.min_tokens, WORK.max_tokens)
    baseline = systems.load_baseline(name, "fp32", network, CPU, work.max_positions, tmp_path / "files")
    assert isinstance(baseline, SystemRunner)
    assert baseline.extract_ids(baseline.prepare(work)()) == prepare_generation(CachedEngine(network, 1 << 40), work)()


@pytest.mark.parametrize("name", ["transformers", "ctranslate2", "onnx"])
def test_greedy_outputs_of_natural_length_are_equal(tmp_path: Path, name: str) -> None:
    pytest.importorskip(name)
    network = make_random_network("tiny", 50)
    with torch.no_grad():
        network.output.bias[3] = 9.0
    work = Workload(WORK.sources, beam=1, batch=2, min_tokens=0, max_tokens=9)
    baseline = systems.load_baseline(name, "fp32", network, CPU, work.max_positions, tmp_path / "files")
    outputs = baseline.extract_ids(baseline.prepare(work)())
    assert outputs == prepare_generation(CachedEngine(network, 1 << 40), work)()
    assert 0 < sum(map(len, outputs)) < 27


@pytest.fixture(scope="module")
def network_with_eos() -> Any:
    """A network that generates EOS."""
    network = make_random_network("tiny", 50)
    with torch.no_grad():
        network.output.bias[EOS] = 6.0
    return network


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformers", "ctranslate2", "onnx"])
@pytest.mark.parametrize("beam", [2, 5])
def test_beam_outputs_of_natural_length_are_equal(network_with_eos: Any, tmp_path: Path, name: str, beam: int) -> None:
    pytest.importorskip(name)
    generator = torch.Generator().manual_seed(1)
    sources = [torch.randint(4, 50, (1 + n % 12,), generator=generator).tolist() for n in range(40)]
    work = Workload(sources, beam, batch=16, min_tokens=0, max_tokens=20)
    baseline = systems.load_baseline(name, "fp32", network_with_eos, CPU, work.max_positions, tmp_path / "files")
    outputs = baseline.extract_ids(baseline.prepare(work)())
    assert outputs == prepare_generation(CachedEngine(network_with_eos, 1 << 40), work)()
    assert len({len(answer) for answer in outputs}) > 4
    assert 0 < sum(len(answer) == work.max_tokens for answer in outputs) < 30


def test_the_dealt_variant_divides_the_batch_among_threads(
    network: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    translator_options: list[dict[str, Any]] = []
    translate_options: list[dict[str, Any]] = []

    class Translator:
        def __init__(self, folder: str, **settings: Any) -> None:
            translator_options.append(settings)

        def translate_batch(self, sources: Any, **settings: Any) -> None:
            translate_options.append(settings)

    monkeypatch.setattr(ctranslate2, "Translator", Translator)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for name in ("ctranslate2", "ctranslate2_dealt"):
        baseline = systems.load_baseline(name, "int8", network, CPU, 20, tmp_path / name)
        baseline.prepare(Workload([[5]] * 9, beam=1, batch=9, min_tokens=4, max_tokens=4))()
    assert [(each["inter_threads"], each["intra_threads"]) for each in translator_options] == [(1, 2), (2, 1)]
    assert [each["max_batch_size"] for each in translate_options] == [9, 5]
    assert baseline.name == "ctranslate2 int8 dealt"


def test_the_faster_batching_is_used_and_named(
    network_with_eos: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    work = Workload(WORK.sources, beam=2, batch=2, min_tokens=0, max_tokens=9)
    baseline = systems.load_baseline(
        "ctranslate2", "fp32", network_with_eos, CPU, work.max_positions, tmp_path / "files"
    )
    outputs = {}
    for variant in ("sentences", "tokens"):
        monkeypatch.setattr(
            systems,
            "pick_faster",
            lambda variants, variant=variant: variant if set(variants) == {"sentences", "tokens"} else "",
        )
        outputs[variant] = baseline.extract_ids(baseline.prepare(work)())
        assert baseline.name == f"ctranslate2 fp32 by {variant}"
    assert outputs["sentences"] == outputs["tokens"]
    for alone in (WORK, Workload(WORK.sources, beam=2, batch=3, min_tokens=0, max_tokens=9)):
        baseline.prepare(alone)
        assert baseline.name == "ctranslate2 fp32"


def test_pick_faster_excludes_the_warm_up() -> None:
    now, calls = [0.0], []

    def make_call(name: str, *seconds: float) -> Callable[[], None]:
        times = iter(seconds)

        def call() -> None:
            calls.append(name)
            now[0] += next(times)

        return call

    variants = {"one": make_call("one", 1.0, 3.0), "other": make_call("other", 9.0, 2.0)}
    assert systems.pick_faster(variants, clock=lambda: now[0]) == "other"
    assert sorted(calls) == ["one", "one", "other", "other"]


@pytest.mark.parametrize("name", ["attendo", "transformers", "ctranslate2"])
@pytest.mark.parametrize("beam", [1, 4])
def test_an_output_of_natural_length_can_be_empty(tmp_path: Path, name: str, beam: int) -> None:
    pytest.importorskip(name)
    network = make_random_network("tiny", 50)
    with torch.no_grad():
        network.output.bias[3] = 100.0
    work = Workload(WORK.sources, beam, batch=2, min_tokens=0, max_tokens=9)
    system: SystemRunner = AttendoRunner(network, "fp32", CPU)
    if name != "attendo":
        system = systems.load_baseline(name, "fp32", network, CPU, work.max_positions, tmp_path / "files")
    assert system.extract_ids(system.prepare(work)()) == [[], [], []]


def test_a_missing_baseline_package_is_skipped_with_a_reason(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(systems, "find_spec", lambda name: None if name == "ctranslate2" else object())
    reports = list(
        compare(BenchmarkPlan(network, "fp32", parse_baselines("transformers,ctranslate2", "fp32"), [WORK], 1, CPU))
    )
    skipped = {each.name: each.reason for each in reports if isinstance(each, SkippedSystem)}
    assert skipped["ctranslate2 fp32"] == message("rival_not_installed", package="ctranslate2", extra="export")
    assert "transformers" in skipped["transformers fp32"]
    assert [each.system for each in reports if isinstance(each, Measurement)] == ["attendo fp32"]


@pytest.mark.parametrize(
    ("name", "precision", "config", "error"),
    [
        ("transformers", "fp32", {}, has_code("transformers_network_unsupported", model="a Pegasus model")),
        (
            "transformers",
            "int8",
            {"norm": "post", "position_layout": "halves"},
            has_code("transformers_precision_unsupported", precision="int8"),
        ),
        ("ctranslate2", "fp32", {"d_value": 9, "positions": "rotary"}, has_code("ctranslate2_network_unsupported")),
        ("ctranslate2", "fp16", {}, has_code("rival_load_failed")),
    ],
)
def test_unsupported_networks_and_precisions_raise_an_error(
    tmp_path: Path, name: str, precision: Any, config: dict[str, Any], error: ErrorCheck
) -> None:
    package = pytest.importorskip(name)
    if precision == "fp16" and "float16" in package.get_supported_compute_types("cpu"):
        pytest.skip("this processor computes in float16")
    network = tiny_model(**config).network
    with pytest.raises(ModelError, check=error):
        systems.load_baseline(name, precision, network, CPU, 20, tmp_path / "files")


def test_a_missing_package_has_no_version() -> None:
    assert systems.package_version("no-such-package-at-all") is None


def test_onnx_rejects_bf16_and_cuda(network: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    for precision, device in (("bf16", CPU), ("fp32", torch.device("cuda"))):
        error = has_code("onnx_precision_or_device_unsupported", precision=precision, device=device.type)
        with pytest.raises(ModelError, check=error):
            systems.load_baseline("onnx", precision, network, device, 9, tmp_path / "files")  # type: ignore[arg-type]

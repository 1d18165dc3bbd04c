"""/models, /training, /formulas and checkpoints."""

from pathlib import Path

import pytest
from small_server import POSTS, SOURCES, TEXT, Asking, error_of, finished_run, random_model

from attendo.serve.scheduling.registry import ModelRegistry, ModelSpec, make_model_specs
from attendo.serve.settings import ServeSettings
from attendo.text_model import ExportedFolder, TextModel
from attendo.text_model.backends import TorchBackend


@pytest.fixture(scope="module")
def others() -> dict[int, TextModel]:
    return {step: random_model(seed) for seed, step in enumerate((100, 200, 300), start=1)}


@pytest.fixture
def run(tmp_path: Path, small_model: TextModel, others: dict[int, TextModel]) -> ModelSpec:
    return finished_run(tmp_path, small_model, others)


def test_models_are_described(server: Asking, small_model: TextModel, run: ModelSpec) -> None:
    (alone,) = server.get("models")["models"]
    assert (alone["name"], alone["checkpoints"], alone["has_training"]) == ("small", [], False)
    (told,) = Asking(run).get("models")["models"]
    assert told["parameters"] == sum(each.numel() for each in small_model.network.parameters())
    assert told["config"] == small_model.network.config.model_dump(mode="json")
    assert (told["encoder_layers"], told["decoder_layers"], told["heads"], told["direction"]) == (2, 2, 2, None)
    assert told["checkpoints"] == ["step-00000100", "step-00000200", "step-00000300"]
    assert told["has_training"] is True
    assert told["samples"] == list(SOURCES)


def test_a_checkpoint_answers_with_its_own_weights(run: ModelSpec, others: dict[int, TextModel]) -> None:
    server = Asking(run)
    for step, model in others.items():
        answer = server.post("trace", checkpoint=f"step-{step:08d}", target="猫")
        assert answer["log_probability"] == pytest.approx(model.score([TEXT], ["猫"])[0], abs=1e-5)
        assert server.post("answer", checkpoint=f"step-{step:08d}")["hypotheses"][0]["text"] == (
            model.generate([TEXT])[0].text
        )
    here = server.post("trace", target="猫")["log_probability"]
    assert here == pytest.approx(run.model.score([TEXT], ["猫"])[0], abs=1e-5)


def test_only_the_last_checkpoints_are_kept(run: ModelSpec) -> None:
    served = ModelRegistry([run], ServeSettings(checkpoint_cache_size=2)).get(None)
    first = served.load_checkpoint("step-00000100")
    assert served.load_checkpoint("step-00000100") is first
    second = served.load_checkpoint("step-00000200")
    assert served.load_checkpoint("step-00000100") is first
    served.load_checkpoint("step-00000300")
    assert served.load_checkpoint("step-00000100") is first
    assert served.load_checkpoint("step-00000200") is not second


def test_a_damaged_checkpoint_is_told(run: ModelSpec) -> None:
    assert run.folder is not None
    (run.folder.parent / "checkpoints" / "step-00000200" / "model.safetensors").write_bytes(b"nothing")
    server = Asking(run)
    server.refused("trace", 409, "bad_checkpoint", text=TEXT, checkpoint="step-00000200")
    assert server.post("trace", checkpoint="step-00000100")["tokens"]


def test_a_checkpoint_of_another_network_is_told(tmp_path: Path, small_model: TextModel) -> None:
    run = finished_run(tmp_path, small_model, {7: random_model(d_model=8)})
    Asking(run).refused("trace", 409, "bad_checkpoint", text=TEXT, checkpoint="step-00000007")


def test_training_is_told_step_by_step(run: ModelSpec) -> None:
    told = Asking(run).get("training?model=run")
    assert [row["step"] for row in told["metrics"]] == [1, 2, 3]
    assert [row["loss"] for row in told["metrics"]] == [4, 3, 2]
    assert told["metrics"][1]["learning_rate"] == pytest.approx(0.2)
    assert (told["validations"], told["best"]) == ([{"step": 3, "loss": 1.5, "bleu": 12.5}], 3)
    assert (told["every"], told["steps"]) == (1, 3)


def test_a_long_training_is_thinned_and_says_so(run: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.explorer.catalogue_routes.MAX_POINTS", 2)
    told = Asking(run).get("training")
    assert ([row["step"] for row in told["metrics"]], told["every"], told["steps"]) == ([1, 3], 2, 3)


def test_metrics_that_cannot_be_read_are_told(run: ModelSpec) -> None:
    assert run.folder is not None
    (run.folder.parent / "metrics.jsonl").write_text("nonsense\n", "utf-8")
    error_of(Asking(run).client.get("/api/v1/training"), 409, "bad_training")


def test_formulas_have_both_languages(server: Asking) -> None:
    formulas = server.get("formulas")["formulas"]
    assert {"A1", "C3", "G1", "H1"} <= {each["id"] for each in formulas}
    assert all(each["text"] and each["en"] and each["zh"] for each in formulas)


def test_models_are_called_after_their_runs(small_model: TextModel) -> None:
    folders = [Path("runs/a/model"), Path("runs/b/model"), Path("other/a/model"), Path("best")]
    names = [each.name for each in make_model_specs(folders, [small_model] * 4)]
    assert names == ["a", "b", "a-2", "best"]


def test_a_model_is_asked_for_by_its_name(small_model: TextModel, others: dict[int, TextModel]) -> None:
    server = Asking(ModelSpec("one", small_model), ModelSpec("two", others[100]))
    assert [each["name"] for each in server.get("models")["models"]] == ["one", "two"]
    for name, model in ((None, small_model), ("one", small_model), ("two", others[100])):
        answer = server.post("trace", model=name, target="猫")
        assert answer["log_probability"] == pytest.approx(model.score([TEXT], ["猫"])[0], abs=1e-5)


class Elsewhere(TorchBackend):
    """Computes as torch does, and is said to be another."""

    name = "ctranslate2"


def test_an_exported_model_answers_and_says_that_it_cannot_be_looked_into(small_model: TextModel) -> None:
    tokenizers = small_model.source_tokenizer, small_model.target_tokenizer
    folder = ExportedFolder(Path("exported"), *tokenizers, {}, about={"source_language": "en", "target_language": "zh"})
    server = Asking(ModelSpec("exported", TextModel(folder, backend=Elsewhere(small_model.network))))
    (told,) = server.get("models")["models"]
    assert (told["parameters"], told["config"], told["heads"], told["samples"]) == (None, None, None, [])
    assert (told["direction"], told["source_language"], told["target_language"]) == ("en → zh", "en", "zh")
    for path in POSTS:
        assert "exported" in server.refused(path, 400, "bad_setting", text=TEXT)["message"]
    assert server.raw("generate", texts=[TEXT]).json()["results"][0]["text"]


def test_the_api_describes_itself(server: Asking) -> None:
    told = server.get("openapi.json")
    assert "/api/v1/trace" in told["paths"]
    assert "TraceRequest" in told["components"]["schemas"]

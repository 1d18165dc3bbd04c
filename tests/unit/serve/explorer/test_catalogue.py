"""/models, /training, /formulas and checkpoints."""

from pathlib import Path

import pytest
import torch
from small_server import POSTS, SOURCES, TEXT, SmallServer, check_error, random_model, write_run

from attendo.model_folder import save_model
from attendo.runs.config import RunConfig, to_toml
from attendo.serve.scheduling.registry import ModelRegistry, ModelSpec, make_model_specs
from attendo.serve.settings import ServeSettings
from attendo.text_model import ExportedFolder, TextModel
from attendo.text_model.backends import TorchBackend


@pytest.fixture(scope="module")
def checkpoint_models() -> dict[int, TextModel]:
    return {step: random_model(seed) for seed, step in enumerate((100, 200, 300), start=1)}


@pytest.fixture
def run(tmp_path: Path, small_model: TextModel, checkpoint_models: dict[int, TextModel]) -> ModelSpec:
    return write_run(tmp_path, small_model, checkpoint_models)


def test_models_are_described(server: SmallServer, small_model: TextModel, run: ModelSpec) -> None:
    (alone,) = server.get("models")["models"]
    assert (alone["name"], alone["checkpoints"], alone["has_training"]) == ("small", [], False)
    (description,) = SmallServer(run).get("models")["models"]
    assert description["parameters"] == sum(each.numel() for each in small_model.network.parameters())
    assert description["config"] == small_model.network.config.model_dump(mode="json")
    assert (
        description["encoder_layers"],
        description["decoder_layers"],
        description["heads"],
        description["direction"],
    ) == (2, 2, 2, None)
    assert description["checkpoints"] == ["step-00000100", "step-00000200", "step-00000300"]
    assert description["has_training"] is True
    assert description["samples"] == list(SOURCES)


def test_a_checkpoint_uses_its_own_weights(run: ModelSpec, checkpoint_models: dict[int, TextModel]) -> None:
    server = SmallServer(run)
    for step, model in checkpoint_models.items():
        answer = server.post("trace", checkpoint=f"step-{step:08d}", target="猫")
        assert answer["log_probability"] == pytest.approx(model.score([TEXT], ["猫"])[0], abs=1e-5)
        assert server.post("answer", checkpoint=f"step-{step:08d}")["hypotheses"][0]["text"] == (
            model.generate([TEXT])[0].text
        )
    log_probability = server.post("trace", target="猫")["log_probability"]
    assert log_probability == pytest.approx(run.model.score([TEXT], ["猫"])[0], abs=1e-5)


def test_only_recent_checkpoints_stay_cached(run: ModelSpec) -> None:
    served = ModelRegistry([run], ServeSettings(checkpoint_cache_size=2)).get(None)
    first = served.load_checkpoint("step-00000100")
    assert served.load_checkpoint("step-00000100") is first
    second = served.load_checkpoint("step-00000200")
    assert served.load_checkpoint("step-00000100") is first
    served.load_checkpoint("step-00000300")
    assert served.load_checkpoint("step-00000100") is first
    assert served.load_checkpoint("step-00000200") is not second


def test_a_damaged_checkpoint_is_an_error(run: ModelSpec) -> None:
    assert run.folder is not None
    (run.folder.parent / "checkpoints" / "step-00000200" / "model.safetensors").write_bytes(b"nothing")
    server = SmallServer(run)
    server.post_error("trace", 409, "bad_checkpoint", text=TEXT, checkpoint="step-00000200")
    assert server.post("trace", checkpoint="step-00000100")["tokens"]


def test_a_checkpoint_of_another_network_is_an_error(tmp_path: Path, small_model: TextModel) -> None:
    run = write_run(tmp_path, small_model, {7: random_model(d_model=8)})
    SmallServer(run).post_error("trace", 409, "bad_checkpoint", text=TEXT, checkpoint="step-00000007")


def test_training_metrics_are_listed_by_step(run: ModelSpec) -> None:
    training = SmallServer(run).get("training?model=run")
    assert [row["step"] for row in training["metrics"]] == [1, 2, 3]
    assert [row["loss"] for row in training["metrics"]] == [4, 3, 2]
    assert training["metrics"][1]["learning_rate"] == pytest.approx(0.2)
    assert (training["validations"], training["best"]) == ([{"step": 3, "loss": 1.5, "bleu": 12.5}], 3)
    assert (training["every"], training["steps"]) == (1, 3)


def test_a_long_training_is_thinned(run: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.explorer.catalogue_routes.MAX_POINTS", 2)
    training = SmallServer(run).get("training")
    assert ([row["step"] for row in training["metrics"]], training["every"], training["steps"]) == ([1, 3], 2, 3)


def test_unreadable_metrics_are_an_error(run: ModelSpec) -> None:
    assert run.folder is not None
    (run.folder.parent / "metrics.jsonl").write_text("nonsense\n", "utf-8")
    check_error(SmallServer(run).client.get("/api/v1/training"), 409, "bad_training")


def test_formulas_have_both_languages(server: SmallServer) -> None:
    formulas = server.get("formulas")["formulas"]
    assert {"A1", "C3", "G1", "H1"} <= {each["id"] for each in formulas}
    assert all(each["text"] and each["en"] and each["zh"] for each in formulas)


def test_models_are_named_after_their_runs(small_model: TextModel) -> None:
    folders = [Path("runs/a/model"), Path("runs/b/model"), Path("other/a/model"), Path("best")]
    names = [each.name for each in make_model_specs(folders, [small_model] * 4)]
    assert names == ["a", "b", "a-2", "best"]


def test_a_model_is_selected_by_name(small_model: TextModel, checkpoint_models: dict[int, TextModel]) -> None:
    server = SmallServer(ModelSpec("one", small_model), ModelSpec("two", checkpoint_models[100]))
    assert [each["name"] for each in server.get("models")["models"]] == ["one", "two"]
    for name, model in ((None, small_model), ("one", small_model), ("two", checkpoint_models[100])):
        answer = server.post("trace", model=name, target="猫")
        assert answer["log_probability"] == pytest.approx(model.score([TEXT], ["猫"])[0], abs=1e-5)


class RenamedBackend(TorchBackend):
    """The torch backend under another name."""

    name = "ctranslate2"


def test_an_exported_model_generates_but_cannot_be_inspected(small_model: TextModel) -> None:
    tokenizers = small_model.source_tokenizer, small_model.target_tokenizer
    folder = ExportedFolder(Path("exported"), *tokenizers, {}, about={"source_language": "en", "target_language": "zh"})
    server = SmallServer(ModelSpec("exported", TextModel(folder, backend=RenamedBackend(small_model.network))))
    (description,) = server.get("models")["models"]
    assert (description["parameters"], description["config"], description["heads"], description["samples"]) == (
        None,
        None,
        None,
        [],
    )
    assert (description["direction"], description["source_language"], description["target_language"]) == (
        "en → zh",
        "en",
        "zh",
    )
    for path in POSTS:
        assert "exported" in server.post_error(path, 400, "bad_setting", text=TEXT)["message"]
    assert server.raw("generate", texts=[TEXT]).json()["results"][0]["text"]


def test_openapi_includes_the_explorer(server: SmallServer) -> None:
    schema = server.get("openapi.json")
    assert "/api/v1/trace" in schema["paths"]
    assert "TraceRequest" in schema["components"]["schemas"]


def test_weights_only_checkpoints_are_offered_instead_of_the_others(
    run: ModelSpec, checkpoint_models: dict[int, TextModel]
) -> None:
    assert run.folder is not None
    for step, model in ((0, checkpoint_models[300]), (7, checkpoint_models[100])):
        save_model(run.folder.parent / "weights" / f"step-{step:08d}", model.stored_model, torch.float16)
    server = SmallServer(run)
    assert server.get("models")["models"][0]["checkpoints"] == ["step-00000000", "step-00000007"]
    for name, step in (("step-00000000", 300), ("step-00000007", 100)):
        expected = checkpoint_models[step].score([TEXT], ["猫"])[0]
        assert server.post("trace", checkpoint=name, target="猫")["log_probability"] == pytest.approx(
            expected, abs=0.05
        )
    server.post_error("trace", 404, "unknown_checkpoint", text=TEXT, checkpoint="step-00000100")
    (run.folder.parent / "weights" / "step-00000007" / "weights.safetensors").write_bytes(b"nothing")
    SmallServer(run).post_error("trace", 409, "bad_checkpoint", text=TEXT, checkpoint="step-00000007")


def test_label_smoothing_is_that_of_the_run(run: ModelSpec) -> None:
    assert SmallServer(run).get("models")["models"][0]["label_smoothing"] is None
    assert run.folder is not None
    settings = {"preset": "tiny", "data": {"task": "builtin"}, "tokenizer": {"kind": "words"}}
    path = run.folder.parent / "run.toml"
    path.write_text(to_toml(RunConfig(**settings, train={"label_smoothing": 0.2})), "utf-8")
    assert SmallServer(run).get("models")["models"][0]["label_smoothing"] == 0.2
    path.write_text("seed = 'of another version'", "utf-8")
    assert SmallServer(run).get("models")["models"][0]["label_smoothing"] is None

"""The explorer on decoder-only models: every route agrees with the network, which reads one row."""

import base64
import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from small_server import POSTS, SmallServer, random_model
from tiny import SIZES, SOURCES, TARGETS
from torch import Tensor

from attendo.data.batch import Example
from attendo.explore.saved_page import render_saved_page
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.head_scaling import sites
from attendo.model_folder import StoredModel
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text import BOS, EOS, Words
from attendo.text_model import TextModel

TEXT = "I saw the small cat"
KINDS: dict[str, dict[str, Any]] = {"language model": {}, "prefix LM": {"prefix_lm": True}}


def decoder_only_model(**changes: Any) -> TextModel:
    words = Words.build((*SOURCES, *TARGETS))
    settings = {**SIZES, "num_encoder_layers": 0, "tie": "none", "vocab_size": words.vocab_size, **changes}
    network = make_network(ModelConfig(**settings), torch.Generator().manual_seed(3))
    with torch.no_grad():
        network.output.weight.mul_(3.0)
        for name, parameter in network.named_parameters():
            if name == "segments":
                parameter.mul_(20)
    return TextModel(StoredModel(network, words, words, {"max_length_extra": 4}, {}, []))


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def model(request: pytest.FixtureRequest) -> TextModel:
    return decoder_only_model(**request.param)


@pytest.fixture
def server(model: TextModel) -> SmallServer:
    return SmallServer(ModelSpec("small", model))


def given_ids(model: TextModel) -> list[int]:
    """The tokens of the row before the first prediction: the source with EOS, or the prompt."""
    ids = list(model.target_tokenizer.encode(TEXT))
    return ids if model.continues_text else [*ids, EOS]


def run_network(model: TextModel, target: list[int]) -> tuple[dict[str, Tensor], Tensor]:
    """The attention of the whole row by site, and the logits of the target."""
    given, seen = given_ids(model), []  # type: ignore[var-annotated]
    network = model.network.eval()
    with torch.no_grad():
        if model.continues_text:
            row = torch.tensor([[BOS, *given, *target[:-1]]])
            logits = network(None, row, None, tap=lambda *each: seen.append(each))[0, len(given) :]
            return {site: weights[0] for site, weights in seen}, logits
        row = torch.tensor([[BOS, *target[:-1]]])
        logits = network(torch.tensor([given]), row, None, tap=lambda *each: seen.append(each))[0]
    parts = {(site, weights.size(-1)): weights[0] for site, weights in seen}
    size = len(given)
    maps = {}
    for site in sites(network.config):
        above = torch.nn.functional.pad(parts[site, size], (0, len(target)))
        maps[site] = torch.cat((above, parts[site, size + len(target)]), dim=1)
    return maps, logits


def unpack(answer: dict[str, Any], kind: str) -> np.ndarray:
    numbers = np.frombuffer(base64.b64decode(answer["block"]), "<f2")
    layout = answer["maps"][kind]
    return numbers[layout["offset"] :][: np.prod(layout["shape"])].reshape(layout["shape"])


def target_of(model: TextModel, answer: dict[str, Any]) -> list[int]:
    pieces = model.target_tokenizer.pieces(range(model.target_tokenizer.vocab_size))
    return [pieces.index(piece) for piece in answer["target"]["predicted"]]


def test_an_answer_has_no_tokens_of_the_prompt(server: SmallServer, model: TextModel) -> None:
    answer = server.post("answer")
    best, whole = answer["hypotheses"][0], model.generate([TEXT])[0].best
    given = len(given_ids(model)) if model.continues_text else 0
    assert [each["id"] for each in best["tokens"] if each["id"] != EOS] == list(whole.ids[given:])
    assert best["text"] == whole.text.removeprefix(TEXT if model.continues_text else "")
    assert answer["source"]["pieces"] == model.target_tokenizer.pieces(given_ids(model))
    _, logits = run_network(model, [each["id"] for each in best["tokens"]])
    expected = logits.log_softmax(-1)[range(len(logits)), [each["id"] for each in best["tokens"]]]
    assert [each["log_probability"] for each in best["tokens"]] == pytest.approx(expected.tolist(), abs=1e-4)
    assert best["log_probability"] == pytest.approx(float(expected.sum()), abs=1e-4)
    events = server.events("answer", stream=True)
    assert "".join(each["text"] for name, each in events if name == "text") == best["text"]


def test_maps_are_those_of_the_row(server: SmallServer, model: TextModel) -> None:
    answer, given = server.post("trace"), given_ids(model)
    target = target_of(model, answer)
    expected, logits = run_network(model, target)
    stacked = torch.stack(list(expected.values())).numpy()
    np.testing.assert_allclose(unpack(answer, "decoder_self"), stacked, atol=1e-3)
    columns = len(given) + int(model.continues_text)
    np.testing.assert_allclose(unpack(answer, "to_source"), stacked[:, :, len(given) :, :columns], atol=1e-3)
    assert answer["maps"]["cross"]["shape"][0] == answer["maps"]["encoder_self"]["shape"][0] == 0
    assert answer["first"] == len(given)
    assert len(answer["target"]["rows"]) == len(answer["target"]["read"]) == len(given) + len(target)
    assert len(answer["source"]["pieces"]) == columns
    labels = torch.tensor(target)[:, None]
    assert answer["loss"] == pytest.approx(-float(logits.log_softmax(-1).gather(1, labels).mean()), abs=1e-4)
    rollout = answer["rollout"]
    assert rollout["shape"] == [len(target), columns]
    sums = np.array(rollout["values"]).reshape(rollout["shape"]).sum(1)
    assert sums == pytest.approx(np.ones(len(target)), abs=1e-5)


def test_a_given_target_is_read(server: SmallServer, model: TextModel) -> None:
    answer = server.post("trace", target="the cat")
    ends = [] if model.continues_text else ["</s>"]
    assert answer["target"]["predicted"] == ["the", "cat", *ends]
    assert answer["text"] == "the cat"


def test_steps_read_the_whole_row(server: SmallServer, model: TextModel) -> None:
    answer, given = server.post("steps", attention=True), given_ids(model)
    pieces = model.target_tokenizer.pieces(given)
    first = ["<s>", *pieces] if model.continues_text else [*pieces, "<s>"]
    assert answer["steps"][0]["read"] == first
    assert [each["cache"] for each in answer["steps"]] == [len(given) + n + 1 for n in range(len(answer["steps"]))]
    assert answer["attention"]["maps"]["decoder_self"]["shape"][2] == len(answer["steps"][-1]["read"])
    assert not answer["steps"][0]["forced"]
    chosen = [each["chosen_id"] for each in answer["steps"]]
    _, logits = run_network(model, chosen)
    expected = logits.log_softmax(-1)[range(len(chosen)), chosen].tolist()
    assert [each["log_probability"] for each in answer["steps"]] == pytest.approx(expected, abs=1e-4)
    other = next(each["id"] for each in answer["steps"][0]["top"] if each["id"] not in (chosen[0], EOS))
    forced = server.post("steps", prefix=[other])
    assert (forced["steps"][0]["chosen_id"], forced["steps"][0]["forced"]) == (other, True)
    found = server.post("distribution", prefix=[other])["log_probabilities"]
    probabilities = np.frombuffer(base64.b64decode(found), "<f4")
    _, logits = run_network(model, [other, EOS])
    allowed = list(range(EOS + 1, len(probabilities)))
    np.testing.assert_allclose(probabilities[allowed], logits[1].log_softmax(-1)[allowed], atol=1e-4)


def test_a_tree_begins_with_the_first_new_token(server: SmallServer, model: TextModel) -> None:
    answer = server.post("tree", decoder={"kind": "beam", "beam": 2, "n_best": 2})
    assert {node["parent"] for node in answer["steps"][0]} == {None}
    ids = {node["id"] for step in answer["steps"] for node in step}
    assert all(node["parent"] in ids for step in answer["steps"][1:] for node in step)
    shown = server.post("answer", decoder={"kind": "beam", "beam": 2, "n_best": 2})["hypotheses"]
    for name in ("log_probability", "score"):
        assert [each[name] for each in answer["ranking"][:2]] == pytest.approx([each[name] for each in shown], abs=1e-4)
    assert [each["text"] for each in answer["ranking"][:2]] == [each["text"].strip() for each in shown]


def test_masks_have_the_whole_row(server: SmallServer, model: TextModel) -> None:
    answer, given = server.post("mask", target="the cat"), len(given_ids(model))
    causal = np.array(answer["causal"])
    expected = np.tril(np.ones_like(causal))
    if not model.continues_text:
        expected[:, :given] = True
    assert (causal == expected).all()
    assert answer["visible"] == answer["causal"]
    assert all(answer["padding"])
    assert answer["loss_unmasked"] != answer["loss"]
    for site in ("cross", "encoder_self"):
        error = server.post_error("mask", 400, "unknown_site", text=TEXT, site=site, target="the cat")
        assert "decoder_self" in error["message"]


def test_padding_of_a_source_is_masked(server: SmallServer, model: TextModel) -> None:
    edits = [{"kind": "padding", "text": f"{TEXT} {TEXT}"}]
    if model.continues_text:
        error = server.post_error("trace", 400, "bad_setting", text=TEXT, edits=edits)
        assert "padding" in error["message"]
        return
    answer, plain = server.post("mask", target="the cat", edits=edits), server.post("mask", target="the cat")
    hidden = [n for n, seen in enumerate(answer["padding"]) if not seen]
    assert [answer["labels"]["columns"][n] for n in hidden] == ["<pad>"] * 5
    assert answer["loss"] == pytest.approx(plain["loss"], abs=1e-4)


def test_edits_change_the_answer(server: SmallServer, model: TextModel) -> None:
    answer = server.post("ablate", target="the cat", edits=[{"kind": "off", "module": "decoder.0"}])
    assert answer["delta"] != 0
    heads = server.post("ablate", target="the cat", heads={"decoder.1.self": {"0": 0.0}})
    scaled = model.with_heads({"decoder.1.self": {0: 0.0}})
    assert heads["delta"] == pytest.approx(sum(log_probs(scaled)) - sum(log_probs(model)), abs=1e-4)
    ranked = [each for name, each in server.events("rank", target="the cat") if name == "head"]
    config = model.network.config
    assert [each["site"] for each in ranked[:: config.num_heads]] == sites(config)


def log_probs(model: TextModel) -> list[float]:
    ids = model.target_tokenizer.encode("the cat")
    (scored,) = model.backend.score([Example(model.target_tokenizer.encode(TEXT), ids)], model.target_tokenizer)
    return list(scored.log_probabilities)


def test_a_forward_pass_has_a_lane_for_every_token(server: SmallServer, model: TextModel) -> None:
    answer, given = server.post("forward", target="the cat"), len(given_ids(model))
    rows = len(answer["target"]["read"])
    assert answer["first"] == given
    assert [answer["stacks"]["encoder"], list(answer["outputs"])] == [[], ["decoder"]]
    assert answer["inputs"]["target"]["shape"] == answer["outputs"]["decoder"]["shape"] == [rows]
    assert answer["stacks"]["decoder"][0]["self"]["maps"]["shape"][1:] == [rows, rows]
    assert len(answer["steps"]) == rows - given


def test_every_operation_can_be_calculated(server: SmallServer, model: TextModel) -> None:
    listed = server.post("operations", target="the cat")
    names = [step["name"] for row in listed["rows"] for step in row["steps"]]
    assert all(row["microseconds"] is None or row["microseconds"] > 0 for row in listed["rows"])
    assert {"decoder.target_rows", "decoder.output", "output.logits"} <= set(names)
    for name in names:
        answer = server.post("calculation", target="the cat", operation=name)
        axis = answer["rows"]["axis"]
        if axis != "none":
            assert answer["rows"]["total"] == len(answer["pieces"][axis]), name


def test_representations_are_those_of_the_predictions(server: SmallServer, model: TextModel) -> None:
    answer = server.post("representations", target="the cat")
    assert len(answer["lens"][-1]) == len(answer["target"]["predicted"])
    trace = server.post("trace", target="the cat")
    last = [row["top"][0]["piece"] for row in answer["lens"][-1]]
    assert last == [token["top"][0]["piece"] for token in trace["tokens"]]
    assert len(answer["norms"]["decoder"][0]) == len(answer["target"]["read"])
    for side in ("source", "target"):
        assert server.post("embeddings", target="the cat", side=side)["side"] == "target"


def test_all_routes_answer(server: SmallServer) -> None:
    for path in POSTS:
        fields = {} if path in ("answer", "steps", "tree") else {"target": "the cat"}
        response = server.raw(path, text=TEXT, **fields)
        assert response.status_code == 200, (path, response.text)


def test_a_model_with_an_encoder_begins_at_row_0() -> None:
    answer = SmallServer(ModelSpec("small", random_model())).post("trace")
    assert answer["first"] == 0
    assert answer["maps"]["to_source"]["shape"][0] == 0
    assert answer["target"]["rows"] == answer["target"]["predicted"]


def test_a_saved_page_has_the_answers_of_the_server(model: TextModel, server: SmallServer) -> None:
    page = render_saved_page(model.trace(TEXT), name="small", text=TEXT)
    found = re.search(r'id="recorded"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    answers = {key.partition(" ")[0]: value for key, value in json.loads(found[1]) if "/calculation" not in key}
    assert answers["/forward"] == server.post("forward")
    (shown,) = answers["/answer"][-1]["data"]["hypotheses"]
    (hypothesis,) = server.post("answer")["hypotheses"]
    assert (shown["text"], shown["cut"]) == (hypothesis["text"], hypothesis["cut"])
    assert shown["pieces"] == hypothesis["pieces"]
    assert [each["id"] for each in shown["tokens"]] == [each["id"] for each in hypothesis["tokens"]]
    assert shown["log_probability"] == pytest.approx(hypothesis["log_probability"], abs=1e-4)

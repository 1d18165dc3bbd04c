"""/answer, /steps and /tree return what the model generates."""

import base64
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_server import TEXT, SmallServer, random_model

from attendo.decode.frontier import RowLimits
from attendo.decode.strategies import Sampling, SamplingFilter
from attendo.serve.explorer.schemas import ExplorerDecodingOptions, TraceRequest
from attendo.serve.explorer.search import ExplorerSearch, InspectedPair
from attendo.serve.explorer.tasks import CooperativeTask
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text import BOS, EOS, PAD
from attendo.text_model import TextModel

DECODERS = [
    ({"kind": "greedy"}, {}),
    ({"kind": "greedy", "n_best": 4, "beam": 4, "temperature": 2.0}, {}),
    ({"kind": "beam", "beam": 3, "n_best": 3}, {"beam": 3, "n_best": 3}),
    ({"kind": "beam", "beam": 2, "n_best": 9, "length_penalty": 0.5}, {"beam": 2, "n_best": 2, "length_penalty": 0.5}),
    (
        {"kind": "beam", "beam": 4, "beam_groups": 2, "diversity_penalty": 1.0},
        {"beam": 4, "beam_groups": 2, "diversity_penalty": 1.0},
    ),
    ({"kind": "sample", "seed": 5, "top_k": 4, "n_best": 2}, {"sample": True, "seed": 5, "top_k": 4, "n_best": 2}),
    ({"kind": "sample", "temperature": 3, "max_length": 4}, {"sample": True, "temperature": 3.0, "max_length": 4}),
]


@pytest.mark.short(2)
@pytest.mark.parametrize(("decoder", "options"), DECODERS)
def test_hypotheses_equal_the_model(server: SmallServer, small_model: TextModel, decoder: dict, options: dict) -> None:
    answer = server.post("answer", decoder=decoder, alternatives=0)
    expected = small_model.generate([TEXT], **options)[0]
    assert answer["source"]["pieces"] == [*TEXT.split(), "</s>"]
    assert [each["text"] for each in answer["hypotheses"]] == [each.text for each in expected.hypotheses]
    for entry, each in zip(answer["hypotheses"], expected.hypotheses, strict=True):
        assert entry["log_probability"] == pytest.approx(each.log_probability, abs=1e-5)
        assert entry["score"] == pytest.approx(each.score, abs=1e-5)
        assert sum(token["log_probability"] for token in entry["tokens"]) == pytest.approx(
            each.log_probability, abs=1e-4
        )
        assert [token["id"] for token in entry["tokens"]] == [*each.ids, *([] if each.cut else [EOS])]
        assert entry["pieces"] == [token["piece"] for token in entry["tokens"]]
        parts = entry["parts"]
        value = (entry["log_probability"] + parts["penalties"]) / parts["length_term"] + parts["reward"]
        assert value + parts["coverage"] == pytest.approx(entry["score"])
        assert entry["cut"] == each.cut


@pytest.mark.short(2)
@pytest.mark.parametrize("decoder", [DECODERS[0][0], DECODERS[2][0], DECODERS[4][0], DECODERS[5][0]])
def test_joined_stream_equals_the_final_text(server: SmallServer, decoder: dict) -> None:
    *parts, (last, final) = server.events("answer", decoder=decoder, stream=True, alternatives=0)
    assert {name for name, _ in parts} <= {"text"}
    assert last == "done"
    assert "".join(part["text"] for _, part in parts) == final["hypotheses"][0]["text"]
    joined = ""
    for _, part in parts:
        joined += part["text"]
        assert part["whole"] == joined
    plain = server.post("answer", decoder=decoder, alternatives=0)
    assert [each["text"] for each in final["hypotheses"]] == [each["text"] for each in plain["hypotheses"]]


def test_greedy_text_is_streamed_word_by_word(server: SmallServer, small_model: TextModel) -> None:
    parts = server.events("answer", stream=True, alternatives=0)[:-1]
    assert len(parts) == len(small_model.generate([TEXT])[0].ids) > 1


def test_an_answer_continues_its_prefix(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("answer", prefix=["猫", "坐"], alternatives=0)["hypotheses"][0]
    expected = small_model.generate([TEXT], prefix="猫 坐")[0]
    assert answer["text"] == expected.text
    assert answer["text"].startswith("猫 坐")
    ids = [token["id"] for token in answer["tokens"]][:2]
    assert server.post("answer", prefix=ids, alternatives=0)["hypotheses"][0] == answer
    streamed = server.events("answer", prefix=ids, alternatives=0, stream=True)
    assert "".join(part["text"] for name, part in streamed if name == "text") == expected.text


def test_a_prefix_can_force_eos(server: SmallServer, small_model: TextModel) -> None:
    (answer,) = server.post("answer", prefix=["猫", "</s>"], alternatives=0)["hypotheses"]
    assert (answer["text"], answer["cut"]) == ("猫", False)
    assert answer["log_probability"] == pytest.approx(small_model.score([TEXT], ["猫"])[0], abs=1e-5)
    steps = server.post("steps", prefix=["猫", "</s>"])
    assert (steps["text"], steps["ended"], [each["forced"] for each in steps["steps"]]) == ("猫", True, [True, True])


def test_alternatives_are_distinct_texts(server: SmallServer) -> None:
    for decoder in ({"kind": "greedy"}, {"kind": "beam", "n_best": 4}):
        answer = server.post("answer", decoder=decoder, alternatives=3)
        texts = [answer["hypotheses"][0]["text"], *answer["alternatives"]]
        assert 1 < len(set(texts)) == len(texts) <= 4
    assert server.post("answer", alternatives=0)["alternatives"] == []


def test_steps_equal_the_trace(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("steps")
    trace = small_model.trace(TEXT)
    assert answer["text"] == trace.text
    assert [step["chosen"] for step in answer["steps"]] == list(trace.target_pieces)
    for t, step in enumerate(answer["steps"]):
        assert step["read"] == list(trace.read_pieces[: t + 1])
        assert (step["cache"], step["forced"]) == (t + 1, False)
        assert step["entropy"] == pytest.approx(float(trace.entropy[t]), abs=1e-4)
        assert step["eos"] == pytest.approx(float(trace.eos_probability[t]), abs=1e-5)
        best = trace.probabilities[t].topk(10)
        assert [each["id"] for each in step["top"]] == best.indices.tolist()
        assert [each["probability"] for each in step["top"]] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert step["probability"] == step["top"][0]["probability"]


def test_a_forced_token_is_marked_and_changes_the_rest(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("steps", prefix=["狗"])
    assert [each["forced"] for each in answer["steps"]][:2] == [True, False]
    assert answer["steps"][0]["chosen"] == "狗"
    assert answer["text"] == small_model.generate([TEXT], prefix="狗")[0].text
    assert answer["steps"][0]["top"] == server.post("steps")["steps"][0]["top"]


def test_the_tree_equals_the_search_tree(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("tree", decoder={"kind": "beam", "beam": 3, "n_best": 3})
    (tree,) = small_model.search_tree(TEXT, beam=3, n_best=3)
    nodes = [node for step in answer["steps"] for node in step]
    assert [node["id"] for node in nodes] == [node.number for node in tree.nodes]
    for entry, node in zip(nodes, tree.nodes, strict=True):
        assert (entry["parent"], entry["token"]) == (node.parent, node.id)
        assert entry["token_log_probability"] == pytest.approx(node.log_probability)
        assert entry["text"] == small_model.target_tokenizer.decode(tree.ids(node))
        assert entry["kept"] == (node.fate in ("goes on", "finished", "cut"))
        before = 0.0 if node.parent is None else nodes[node.parent]["log_probability"]
        if node.id is not None:
            assert entry["log_probability"] == pytest.approx(before + node.log_probability)
    found = small_model.generate([TEXT], beam=3, n_best=3)[0].hypotheses
    assert [each["text"] for each in answer["ranking"]][:3] == [each.text for each in found]
    assert [each["score"] for each in answer["ranking"]][:3] == pytest.approx([each.score for each in found], abs=1e-5)
    assert {"kept", "score"} <= {node["reason"] for node in nodes}


def test_a_node_names_the_rule_that_banned_it() -> None:
    model = random_model()
    with torch.no_grad():
        model.network.output.weight[EOS].zero_()
    server = SmallServer(ModelSpec("endless", model))
    decoder = {"kind": "beam", "beam": 2, "no_repeat_ngram_size": 1, "max_length": 6}
    nodes = [node for step in server.post("tree", decoder=decoder)["steps"] for node in step]
    banned = [node for node in nodes if node["reason"] == "ngram"]
    assert banned
    by_id = {node["id"]: node for node in nodes}
    for node in banned:
        previous, parent = [], node["parent"]
        while parent is not None:
            previous.append(by_id[parent]["token"])
            parent = by_id[parent]["parent"]
        assert not node["kept"]
        assert node["token"] in previous


def test_beam_groups_are_numbered_with_unique_nodes(server: SmallServer) -> None:
    answer = server.post("tree", decoder={"kind": "beam", "beam": 4, "beam_groups": 2})
    nodes = {node["id"]: node for step in answer["steps"] for node in step}
    assert len(nodes) == sum(map(len, answer["steps"]))
    assert {node["group"] for node in nodes.values()} == {0, 1}
    assert all(node["parent"] is None or nodes[node["parent"]]["group"] == node["group"] for node in nodes.values())


def test_disabled_heads_change_answers(server: SmallServer, small_model: TextModel) -> None:
    heads = {"decoder.1.cross": {"0": 0.0, "1": 0.0}, "encoder.0.self": {"1": 0.5}}
    without = small_model.with_heads({"decoder.1.cross": {0: 0.0, 1: 0.0}, "encoder.0.self": {1: 0.5}})
    expected = without.generate([TEXT])[0]
    answer = server.post("answer", heads=heads, alternatives=0)["hypotheses"][0]
    assert answer["text"] == expected.text
    assert answer["log_probability"] == pytest.approx(expected.log_probability, abs=1e-5)
    assert answer["log_probability"] != server.post("answer", alternatives=0)["hypotheses"][0]["log_probability"]
    assert server.post("steps", heads=heads)["text"] == expected.text


def test_explorer_decoding_yields_after_every_token(small_model: TextModel) -> None:
    def count_yields(work: CooperativeTask[Any]) -> tuple[int, Any]:
        count = 0
        while True:
            try:
                next(work)
            except StopIteration as end:
                return count, end.value
            count += 1

    for decoder in (ExplorerDecodingOptions(), ExplorerDecodingOptions(kind="beam", beam=3)):
        request = TraceRequest(text=TEXT, decoder=decoder)
        search = ExplorerSearch(small_model, request, max_source_tokens=99, max_length=99)
        tokens = len(small_model.generate([TEXT], **decoder.to_generate_options())[0].ids)
        count, found = count_yields(search.generate())
        assert count > tokens == len(found[0].ids) > 3
        count, trees = count_yields(search.record_trees())
        assert count >= max(node.step for node in trees[0].nodes) > 3
        assert count_yields(InspectedPair.build(small_model, request, ServeSettings()))[0] > tokens


def test_steps_have_the_attention_of_their_own_answer(server: SmallServer) -> None:
    steps = server.post("steps", prefix=["猫"], attention=True)
    trace = server.post("trace", target=steps["text"])
    assert [each["chosen"] for each in steps["steps"]][: len(trace["target"]["predicted"]) - 1] == (
        trace["target"]["predicted"][:-1]
    )
    attention = steps["attention"]
    assert attention["target"]["predicted"] == [each["chosen"] for each in steps["steps"]]
    assert attention["maps"]["cross"]["shape"] == [2, 2, len(steps["steps"]), len(steps["source"]["pieces"])]
    if steps["ended"]:
        assert attention["block"] == trace["block"]
    assert server.post("steps")["attention"] is None


def test_large_maps_are_left_out_of_the_steps(small_model: TextModel) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(max_map_bytes=10))
    answer = server.post("steps", attention=True)
    assert answer["attention"] is None
    assert answer["steps"]


def test_a_distribution_is_that_of_the_sampler(server: SmallServer, small_model: TextModel) -> None:
    """The seed, the filters and this distribution determine each token of a sample."""
    options = {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "seed": 11}
    found = server.post("steps", decoder={"kind": "sample", **options})
    chosen = [each["chosen_id"] for each in found["steps"]]
    sampling = Sampling(1, 11, SamplingFilter(1.5, 5, 0.9))
    for position, expected in enumerate(chosen):
        answer = server.post("distribution", prefix=chosen[:position], decoder={"kind": "sample", **options})
        log_probs = torch.frombuffer(bytearray(base64.b64decode(answer["log_probabilities"])), dtype=torch.float32)
        assert log_probs[[PAD, BOS]].exp().tolist() == [0, 0], "the rules of decoding apply"
        limits = RowLimits(
            *(torch.tensor([each]) for each in (99, 0)),
            torch.zeros(1, 0, dtype=torch.long),
            torch.tensor([found["request_id"]]),
        )
        frontier = replace(sampling.start(limits), length=torch.tensor([position]))
        _, after = sampling.advance(frontier, log_probs[None], log_probs[None])
        assert after.ids[0, position + 1].item() == expected
    sampled = small_model.generate([TEXT], sample=True, **options)[0].hypotheses[0]
    assert chosen[: len(sampled.ids)] == list(sampled.ids)


def test_the_vocabulary_lists_the_target_pieces_by_id(server: SmallServer, small_model: TextModel) -> None:
    tokenizer = small_model.target_tokenizer
    assert server.get("vocabulary")["pieces"] == tokenizer.pieces(range(tokenizer.vocab_size))

"""The endpoints of the explorer read the symbols after the EOS of a source."""

import pytest
import torch
from small_server import SmallServer
from tiny import SIZES

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text import EOS, Words
from attendo.text_model import TextModel

TEXT = "the cat sat"
WORDS = Words.build([TEXT, "a dog ran"], symbols=("<en>", "<end>"))


def make_server(swap: bool) -> SmallServer:
    """With `swap`, `<end>` has the embedding of EOS, and EOS that of `<en>`: `TEXT<end>` is `TEXT` with the suffix."""
    sizes = {"source_vocab_size": WORDS.vocab_size, "target_vocab_size": WORDS.vocab_size, "tie": "none"}
    network = Transformer(ModelConfig(**{**SIZES, **sizes}), torch.Generator().manual_seed(3))
    assert network.source is not None
    end, english = (WORDS.encode(symbol)[0] for symbol in ("<end>", "<en>"))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2)
        if swap:
            network.source.tokens.weight[[end, EOS]] = network.source.tokens.weight[[EOS, english]]
    generation = {"max_length_factor": 0.0, "max_length_extra": 6, **({} if swap else {"source_suffix": ["<en>"]})}
    return SmallServer(ModelSpec("m", TextModel(StoredModel(network, WORDS, WORDS, generation))))


@pytest.fixture(scope="module")
def servers() -> tuple[SmallServer, SmallServer]:
    return make_server(swap=False), make_server(swap=True)


@pytest.mark.parametrize("path", ["steps", "tree", "trace", "operations"])
def test_endpoints_read_the_suffix(servers: tuple[SmallServer, SmallServer], path: str) -> None:
    found, expected = (server.post(path, text) for server, text in zip(servers, (TEXT, f"{TEXT}<end>"), strict=True))
    for body, pieces in (
        (found, ["the", "cat", "sat", "</s>", "<en>"]),
        (expected, ["the", "cat", "sat", "<end>", "</s>"]),
    ):
        if "source" in body:
            assert body.pop("source")["pieces"] == pieces
        for name in ("unknown", "seconds"):
            body.pop(name, None)
    if path == "steps":
        assert [step["chosen"] for step in found["steps"]] == [step["chosen"] for step in expected["steps"]]
        assert found["text"] == expected["text"]
        assert found["steps"][0]["probability"] == pytest.approx(expected["steps"][0]["probability"], abs=1e-5)
        assert found["steps"][0]["probability"] != servers[1].post(path, TEXT)["steps"][0]["probability"]
    else:
        assert found.keys() == expected.keys()


def test_answers_and_scores_read_the_suffix(servers: tuple[SmallServer, SmallServer]) -> None:
    texts = TEXT, f"{TEXT}<end>"
    found, expected = (server.post("answer", text) for server, text in zip(servers, texts, strict=True))
    assert found["source"]["pieces"] == ["the", "cat", "sat", "</s>", "<en>"]
    for one, other in zip(found["hypotheses"], expected["hypotheses"], strict=True):
        assert one["pieces"] == other["pieces"]
        assert one["log_probability"] == pytest.approx(other["log_probability"], abs=1e-5)

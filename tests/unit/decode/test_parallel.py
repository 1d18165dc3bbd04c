"""Decoding of networks that predict all tokens at once: paths by enumeration, passes by hand, batches and limits."""

import itertools
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from attendo.decode import parallel
from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.frontier import Frontier
from attendo.decode.parallel import (
    ParallelBatch,
    ParallelEngine,
    _MaskedRunner,
    decode_ctc,
    decode_graph,
    predict_masked,
    propose_lengths,
    select_length,
)
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import ForcedPrefix, SuppressTokens
from attendo.decode.strategies import Greedy
from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.decoder_state import Memory
from attendo.model.parallel import LENGTH_CLASSES, Canvas, ParallelTransformer, Prediction
from attendo.text import BOS, EOS, PAD

VOCABULARY = 8
SOURCES = [(4, 5, 6, 7, 4), (6,), (5, 5, 4), (7, 6, 4)]
RULES = (SuppressTokens(),)
NO_MEMORY = Memory(torch.zeros(1, 1, 8), None)  # of networks whose prediction is fixed


def make_network(kind: str, **changes: Any) -> ParallelTransformer:
    """A tiny random network. Its tables are scaled, so that its distributions are not flat."""
    config = ModelConfig(
        kind=kind, vocab_size=VOCABULARY, d_model=8, num_heads=2, d_ff=16, num_encoder_layers=1, num_decoder_layers=1,
        upsample=None if kind == "masked" else 2, dropout=0.0, tie="all", **changes,
    )  # fmt: skip
    network = ParallelTransformer(config, torch.Generator().manual_seed(3)).eval()
    with torch.no_grad():
        network.target.tokens.weight.mul_(4)
    return network


@pytest.fixture(params=["masked", "ctc", "graph"])
def network(request: pytest.FixtureRequest) -> ParallelTransformer:
    return make_network(request.param)


def make_requests(max_length: int = 200) -> list[DecodeRequest]:
    return [DecodeRequest(number, source, max_length) for number, source in enumerate(SOURCES)]


def generate(engine: ParallelEngine, requests: Sequence[DecodeRequest]) -> dict[int, Frontier]:
    found = [each for batch in engine.generate(requests, Greedy(), RULES) for each in batch.split()]
    assert len(found) == len(requests)
    return {request.request_id: frontier for request, frontier in found}


def read_tokens(frontier: Frontier) -> list[int]:
    (row,) = frontier.ids.tolist()
    return [token for token in row if token not in (BOS, EOS, PAD)]


def fix_prediction(network: ParallelTransformer, monkeypatch: pytest.MonkeyPatch, prediction: Prediction) -> Canvas:
    """Let the network predict this, whatever it reads."""
    monkeypatch.setattr(network, "predict", lambda *_: prediction)
    size = prediction.logits.size(1)
    ids = torch.zeros(1, size, dtype=torch.long)
    return Canvas(ids, torch.zeros_like(ids, dtype=torch.bool), torch.ones_like(ids, dtype=torch.bool))


@pytest.mark.parametrize("padding", [0, 5])
def test_batches_and_padding_do_not_change_answers(network: ParallelTransformer, padding: int) -> None:
    engine = ParallelEngine(network, GenerationConfig(), 4096, padding=padding)
    together = generate(engine, make_requests())
    for request in make_requests():
        (alone,) = generate(ParallelEngine(network, GenerationConfig(), 4096), [request]).values()
        assert read_tokens(together[request.request_id]) == read_tokens(alone)
        torch.testing.assert_close(together[request.request_id].log_probability, alone.log_probability)


def test_explicit_attention_gives_the_same_answers(network: ParallelTransformer) -> None:
    fused, explicit = (ParallelEngine(network, GenerationConfig(), 4096, explicit=each) for each in (False, True))
    expected = {number: read_tokens(each) for number, each in generate(fused, make_requests()).items()}
    assert {number: read_tokens(each) for number, each in generate(explicit, make_requests()).items()} == expected


def test_batches_of_fixed_shape_give_the_same_answers(network: ParallelTransformer) -> None:
    plain, static = (ParallelEngine(network, GenerationConfig(), 4096, captured=each) for each in (False, True))
    for requests in (make_requests(), make_requests()[:3], make_requests()[1:2]):
        expected, found = (generate(engine, requests) for engine in (plain, static))
        for number, frontier in expected.items():
            assert read_tokens(found[number]) == read_tokens(frontier)
            torch.testing.assert_close(found[number].log_probability, frontier.log_probability)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("prefix", [(), (5, 6)])
def test_a_graph_decodes_by_token_in_batches_of_fixed_shape(width: int, prefix: tuple[int, ...]) -> None:
    """Small batches, so that sentences are inserted into slots that others have left."""
    network = make_network("graph")
    config = GenerationConfig(graph_search="tokens")
    strategy = Beam(width, Ranking("none")) if width > 1 else Greedy()
    requests = [DecodeRequest(number, source, 9, prefix=prefix) for number, source in enumerate(SOURCES * 3)]
    rules = (*RULES, ForcedPrefix()) if prefix else RULES
    plain, static = (
        {
            request.request_id: frontier
            for batch in ParallelEngine(network, config, 32 * 2 * width, captured=captured).generate(
                requests, strategy, rules
            )
            for request, frontier in batch.split()
        }
        for captured in (False, True)
    )
    assert len(plain) == len(static) == len(requests)
    for number, frontier in plain.items():
        found, expected = (
            [*zip(each.ids.tolist(), each.length.tolist(), strict=True)] for each in (static[number], frontier)
        )
        assert [ids[:length] for ids, length in found] == [ids[:length] for ids, length in expected]
        torch.testing.assert_close(static[number].log_probability, frontier.log_probability)


def test_answers_end_with_eos_or_are_cut(network: ParallelTransformer) -> None:
    engine = ParallelEngine(network, GenerationConfig(), 4096)
    complete, cut = generate(engine, make_requests()), generate(engine, make_requests(max_length=1))
    for number, frontier in complete.items():
        tokens = read_tokens(frontier)
        assert frontier.ids[0, : len(tokens) + 2].tolist() == [BOS, *tokens, EOS]
        assert (int(frontier.length), bool(frontier.ended), bool(frontier.cut)) == (len(tokens) + 1, True, False)
        short, is_cut = cut[number], len(tokens) > 1
        assert short.ids[0].tolist() == ([BOS, tokens[0], PAD] if is_cut else [BOS, *tokens, EOS, PAD][:3])
        assert int(short.length) == (1 if is_cut else len(tokens) + 1)
        assert (bool(short.cut), bool(short.ended)) == (is_cut, not is_cut)
        assert not frontier.open.any()
        assert not short.open.any()


@pytest.mark.parametrize(("numbers", "expected"), [(1 << 29, 50), (2 * VOCABULARY * 2 * 7, 7), (1, 1)])
def test_batches_of_fixed_shape_have_a_limited_size(
    numbers: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two numbers for each token of the vocabulary at each of two vertices per source token."""
    sizes: list[int] = []
    monkeypatch.setattr(parallel, "_MAX_STATIC_NUMBERS", numbers)
    monkeypatch.setattr(parallel, "FastEngine", lambda network, batch_tokens: sizes.append(batch_tokens))
    ParallelEngine(make_network("graph"), GenerationConfig(graph_search="tokens"), 100, captured=True)
    assert sizes == [expected]


@pytest.mark.parametrize("search", ["greedy", "lookahead", "viterbi"])
def test_a_graph_decodes_the_defined_path(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy: the best hop. Lookahead: the best hop and token. Viterbi: the best path of all, by enumeration."""
    torch.manual_seed(5)
    size, network = 7, make_network("graph")
    links = torch.randn(size, size).masked_fill(torch.ones(size, size).tril().bool(), float("-inf")).log_softmax(-1)
    links[-1] = float("-inf")
    prediction = Prediction(torch.randn(1, size, VOCABULARY), links[None])
    canvas = fix_prediction(network, monkeypatch, prediction)
    tokens = prediction.logits[0].clone()
    tokens[:, [PAD, BOS, EOS]] = float("-inf")
    best, ids = tokens.log_softmax(-1).max(-1)
    best[-1] = 0  # EOS is certain there

    def score(path: Sequence[int]) -> float:
        return sum(float(links[u, v] + best[v]) for u, v in itertools.pairwise((0, *path, size - 1)))

    if search == "viterbi":
        paths = [path for count in range(1, 7) for path in itertools.combinations(range(1, size - 1), count)]
        path = list(max(paths, key=lambda each: score(each) / len(each)))
    else:
        path, vertex = [], 0
        while (vertex := int((links[vertex] + (best if search == "lookahead" else 0)).argmax())) != size - 1:
            path.append(vertex)
    answers = decode_graph(network, NO_MEMORY, canvas, search)
    assert answers.ids[0, : int(answers.lengths)].tolist() == ids[path].tolist()
    assert float(answers.log_probability) == pytest.approx(score(path), abs=1e-5)


def test_ctc_merges_runs_and_drops_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    network, row = make_network("ctc"), [PAD, 5, 5, PAD, 5, 6, 6, PAD, 7]
    logits = torch.nn.functional.one_hot(torch.tensor([row]), VOCABULARY) * 9.0
    canvas = fix_prediction(network, monkeypatch, Prediction(logits))
    answers = decode_ctc(network, NO_MEMORY, canvas)
    assert answers.ids[0, : int(answers.lengths)].tolist() == [5, 5, 6, 7]


def test_ctc_never_emits_silent_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make_network("ctc")
    logits = torch.zeros(1, 4, VOCABULARY)
    logits[..., [BOS, EOS, 5]] = torch.tensor([9.0, 8.0, 7.0])
    logits[..., 6] = 6.0
    answers = decode_ctc(network, NO_MEMORY, fix_prediction(network, monkeypatch, Prediction(logits)), (PAD, 5))
    assert answers.ids[0, : int(answers.lengths)].tolist() == [6]


def test_mask_predict_hides_the_least_confident_tokens() -> None:
    network, passes = make_network("masked"), 4
    source = torch.tensor([[4, 5, 6, 7, 4, EOS]])
    with torch.no_grad():
        done = predict_masked(network, network.encode(source), torch.tensor([[4, 6, 5]]), 8, passes)
    assert bool((done[0].hidden == done[0].inside).all())
    for number, (before, after) in enumerate(itertools.pairwise(done), start=1):
        for row in range(3):
            size = int(after.inside[row].sum())
            hidden = after.hidden[row].nonzero().flatten().tolist()
            assert len(hidden) == max(1, size * (passes - number) // passes)
            order = before.log_probs[row, :size].argsort(stable=True).tolist()
            assert hidden == sorted(order[: len(hidden)])
            kept = [position for position in range(size) if position not in hidden]
            assert after.ids[row, kept].tolist() == before.ids[row, kept].tolist()
            assert after.log_probs[row, kept].tolist() == before.log_probs[row, kept].tolist()


def test_the_most_probable_length_is_selected() -> None:
    network, source = make_network("masked"), torch.tensor([[4, 5, 6, EOS]])
    with torch.no_grad():
        memory = network.encode(source)
        lengths, scores = propose_lengths(network, memory, torch.tensor([4]), 4)
        first = LENGTH_CLASSES // 2 - 3  # the class of length 1
        last = predict_masked(network, memory, lengths, int(lengths.max()), 2)[-1]
        sizes = (network.predict_lengths(memory)[0, first:].topk(4).indices + 1).tolist()
    assert last.inside.sum(-1).tolist() == sizes
    means = [float((last.log_probs[row, :size].sum() + scores[0, row]) / (size + 1)) for row, size in enumerate(sizes)]
    answers = select_length(last, scores)
    assert int(answers.lengths) == sizes[means.index(max(means))]


def test_a_batch_of_a_server_takes_the_waiting_requests_in_one_step(network: ParallelTransformer) -> None:
    engine = ParallelEngine(network, GenerationConfig(), 4096)
    expected = {number: read_tokens(each) for number, each in generate(engine, make_requests()).items()}
    batch, waiting, found = ParallelBatch(engine, Greedy(), RULES, 3), deque(make_requests()), {}
    for left in (1, 0):
        for answers in batch.step(waiting):
            found |= {request.request_id: read_tokens(frontier) for request, frontier in answers.split()}
        assert (len(waiting), batch.busy, batch.num_free) == (left, False, 3)
    assert found == expected


def test_a_parallel_network_has_no_steps(network: ParallelTransformer) -> None:
    with pytest.raises(UsageError) as raised:
        network.step(torch.tensor([[BOS]]), None)
    assert (raised.value.code, raised.value.values["kind"]) == ("parallel_network_has_no_steps", network.config.kind)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("kind", ["masked", "graph"])
def test_repeated_tokens_are_merged(kind: str, captured: bool) -> None:
    network = make_network(kind)
    plain, merged = (
        generate(
            ParallelEngine(network, GenerationConfig(merge_repeats=each), 4096, captured=captured), make_requests()
        )
        for each in (False, True)
    )
    expected = {
        number: [token for token, _ in itertools.groupby(read_tokens(frontier))] for number, frontier in plain.items()
    }
    assert any(read_tokens(frontier) != expected[number] for number, frontier in plain.items())
    assert {number: read_tokens(frontier) for number, frontier in merged.items()} == expected


def test_a_fixed_shape_has_room_for_other_target_lengths() -> None:
    network, config = make_network("masked"), GenerationConfig()
    generator = torch.Generator().manual_seed(1)
    sources = [torch.randint(4, VOCABULARY, (size,), generator=generator).tolist() for size in (8, 3, 12, 5)]
    requests = [DecodeRequest(number, tuple(source), 200) for number, source in enumerate(sources)]
    static, plain = (ParallelEngine(network, config, 4096, captured=each) for each in (True, False))
    for request in requests:
        found, expected = generate(static, [request]), generate(plain, [request])
        assert read_tokens(found[request.request_id]) == read_tokens(expected[request.request_id])
    (runner,) = static._runners.values()
    assert isinstance(runner, _MaskedRunner)
    assert len(runner._passes) > 1


def test_learned_positions_limit_the_width_of_a_fixed_shape() -> None:
    network = make_network("masked", positions="learned", max_length=20)
    request = DecodeRequest(0, (4, 5) * 9, 200)  # a batch of fixed shape would have 32 columns
    plain, static = (
        generate(ParallelEngine(network, GenerationConfig(), 4096, captured=each), [request]) for each in (False, True)
    )
    assert read_tokens(static[0]) == read_tokens(plain[0])


def test_threads_that_share_an_engine_get_their_own_answers() -> None:
    engine = ParallelEngine(make_network("graph"), GenerationConfig(), 4096, captured=True)
    alone = [(request, read_tokens(*generate(engine, [request]).values())) for request in make_requests()]
    assert len({tuple(tokens) for _, tokens in alone}) > 1

    def decode(case: tuple[DecodeRequest, list[int]]) -> bool:
        return all(read_tokens(*generate(engine, [case[0]]).values()) == case[1] for _ in range(40))

    with ThreadPoolExecutor(len(alone)) as pool:
        assert all(pool.map(decode, alone))


def test_proposed_lengths_are_possible_and_different() -> None:
    """The length head prefers lengths below 1, which are not possible, and 3."""
    network = make_network("masked")
    assert network.length_head is not None
    with torch.no_grad():
        network.length_head.weight.zero_()
        network.length_head.bias.zero_()
        network.length_head.bias[:60] = 9.0
        network.length_head.bias[LENGTH_CLASSES // 2 - 1] = 5.0
    with torch.no_grad():
        memory = network.encode(torch.tensor([[5, 6, 7, EOS]]))
        lengths, log_probs = propose_lengths(network, memory, torch.tensor([4]), 50)
        expected = network.predict_lengths(memory).log_softmax(-1)[0, LENGTH_CLASSES // 2 - 1]
    assert lengths[0, 0] == 3
    assert len({*lengths[0].tolist()}) == 50
    assert int(lengths.min()) >= 1
    assert float(log_probs[0, 0]) == pytest.approx(float(expected))

"""/calculation sends operands from which each cell of every operation can be computed."""

import base64
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_server import TEXT, SmallServer, random_model
from torch.nn import functional

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text_model import TextModel

TARGET = "猫 坐 着"
Arrays = dict[str, NDArray[np.float64]]
ACTIVATIONS = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "activation": "gelu", "embedding_norm": True},
    {"positions": "rotary", "norm_kind": "rms", "activation": "silu"},
    {"positions": "relative", "linear_bias": False, "output_scale": 0.5, "attention_scale": 1.0},
    {"positions": "learned", "max_length": 30, "activation": "swiglu", "scale_embedding": False},
    {"position_layout": "halves", "activation": "gelu_tanh", "output_bias": True},
    {"autoregression": "ssru"},
]


def unpack(answer: dict[str, Any]) -> Arrays:
    numbers = np.frombuffer(base64.b64decode(answer["block"]), "<f4")
    return {
        name: numbers[each["offset"] :][: int(np.prod(each["shape"]))].reshape(each["shape"]).astype(float)
        for name, each in answer["tensors"].items()
    }


def recompute(answer: dict[str, Any], arrays: Arrays) -> NDArray[np.float64] | None:
    """The result from the operands alone, by NumPy and torch.nn.functional. None: there is nothing to compute."""
    kind, formula, numbers = answer["kind"], answer["formula"], answer["numbers"]
    left, right = arrays.get("left"), arrays.get("right")
    match kind:
        case "linear":
            return left @ right + arrays.get("bias", 0.0)
        case "sigmoid":
            return 1 / (1 + np.exp(-(left @ right + arrays["bias"])))
        case "sum":
            return left + right
        case "scale":
            return numbers["factor"] * left
        case "elementwise" if formula == "positive_cells":
            return np.maximum(left, 0)
        case "elementwise":
            return ACTIVATIONS[formula](torch.from_numpy(left)).numpy() if formula in ACTIVATIONS else left
        case "gate":
            return functional.silu(torch.from_numpy(left)).numpy() * right
        case "rotation":
            angles, half = arrays["angles"], answer["columns"]["total"] // 2
            columns = np.arange(answer["columns"]["count"]) + answer["columns"]["first"]
            turned = left * np.cos(angles) - right * np.sin(angles), left * np.sin(angles) + right * np.cos(angles)
            return np.where(columns < half, *turned)
        case "sinusoid":
            columns = np.arange(answer["columns"]["count"]) + answer["columns"]["first"]
            halves = columns < answer["columns"]["total"] // 2
            return np.where(columns % 2 == 0 if formula == "sinusoids" else halves, np.sin(left), np.cos(left))
        case "outer":
            return left * right
        case "layer_norm" | "rms_norm":
            first = answer["columns"]["first"]
            centred = left - left.mean(-1, keepdims=True) if kind == "layer_norm" else left
            scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + numbers["epsilon"])
            return scaled[:, first:][:, : answer["columns"]["count"]] * arrays["gain"] + arrays.get("bias", 0.0)
        case "recurrence":
            return left * arrays["before"] + (1 - left) * right
        case "probabilities":
            return np.exp(left - arrays["largest"][:, None]) / arrays["total"][:, None]
        case "attention":
            products = left @ right.T
            np.testing.assert_allclose(arrays["products"], products, atol=1e-4)
            np.testing.assert_allclose(arrays["scores"], products * numbers["scale"] + arrays.get("bias", 0), atol=1e-4)
            visible = np.isfinite(arrays["masked"])
            np.testing.assert_array_equal(arrays["masked"][visible], arrays["scores"][visible])
            powers = np.exp(arrays["masked"])
            np.testing.assert_allclose(arrays["weights"], powers / powers.sum(-1, keepdims=True), atol=1e-5)
            scaled = products * numbers["scale"]
            own = {"products": products, "relative_bias": arrays.get("bias"), "softmax": arrays["weights"]}
            masked = dict.fromkeys(("padding_mask", "causal_mask", "unmasked"), arrays["masked"])
            is_scaled = formula in ("scores", "scores_by_scale")
            return scaled if is_scaled else {**own, **masked, "biased_scores": arrays["scores"]}[formula]
        case "mixture":
            return numbers["head_scale"] * (arrays["weights"] @ right)
    return None


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_cell_follows_from_its_operands(changes: dict[str, Any]) -> None:
    model = random_model(**changes)
    server = SmallServer(ModelSpec("small", model))
    heads = {"decoder.1.cross": {"1": 0.5}}
    trace = model.with_heads({"decoder.1.cross": {1: 0.5}}).trace(TEXT, TARGET)
    explained = 0
    for name, value in trace.items():
        answer = server.post("calculation", target=TARGET, operation=name, head=1, heads=heads)
        arrays = unpack(answer)
        rows, columns = answer["rows"], answer["columns"]
        assert arrays["result"].shape == (rows["count"], columns["count"])
        whole = (value[1] if value.dim() == 3 else value).numpy()
        whole = whole[None] if answer["formula"] == "frequencies" else whole.reshape(len(whole), -1)
        chosen = columns.get("ids", range(columns["first"], columns["first"] + columns["count"]))
        np.testing.assert_array_equal(arrays["result"], whole[: rows["count"], list(chosen)].astype(np.float32))
        found = recompute(answer, arrays)
        explained += found is not None
        if found is not None:
            np.testing.assert_allclose(found, arrays["result"], atol=2e-5, err_msg=name)
    assert explained > 0.75 * len(trace)


def test_a_window_begins_where_it_was_asked_for(server: SmallServer, small_model: TextModel) -> None:
    operation = "decoder.1.feed_forward.inner"
    answer = server.post("calculation", target=TARGET, operation=operation, row=2, column=5)
    value = small_model.trace(TEXT, TARGET)[operation]
    assert (answer["rows"]["first"], answer["rows"]["count"], answer["rows"]["total"]) == (2, 2, 4)
    assert answer["columns"] == {"axis": "dimensions", "first": 5, "count": value.size(1) - 5, "total": value.size(1)}
    np.testing.assert_array_equal(unpack(answer)["result"], value[2:, 5:].numpy())


def test_large_matrices_are_sent_in_windows() -> None:
    """32 rows and columns of a matrix. A row of attention is complete, because its softmax needs all of it."""
    model = random_model(d_ff=256)
    server = SmallServer(ModelSpec("small", model))
    long_text = " ".join(["cat"] * 80)
    answer = server.post("calculation", text=long_text, target=TARGET, operation="encoder.0.feed_forward.inner")
    assert unpack(answer)["result"].shape == (32, 32)
    assert len(answer["block"]) < 40_000
    answer = server.post("calculation", text=long_text, target=TARGET, operation="encoder.0.self.weights", row=60)
    weights = unpack(answer)["result"]
    assert weights.shape == (21, 81)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("operation", "rows", "columns"),
    [
        ("source.ids", "source", "ids"),
        ("target.embedding", "read", "dimensions"),
        ("encoder.0.self.weights", "source", "source"),
        ("decoder.0.self.queries", "predicted", "dimensions"),
        ("decoder.0.self.keys", "read", "dimensions"),
        ("decoder.0.self.weights", "predicted", "read"),
        ("decoder.0.cross.values", "source", "dimensions"),
        ("decoder.0.cross.scores", "predicted", "source"),
        ("output.probabilities", "predicted", "vocabulary"),
    ],
)
def test_axes_are_named(server: SmallServer, operation: str, rows: str, columns: str) -> None:
    answer = server.post("calculation", target=TARGET, operation=operation)
    assert (answer["rows"]["axis"], answer["columns"]["axis"]) == (rows, columns)


def test_the_most_probable_tokens_come_first(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("calculation", target=TARGET, operation="output.probabilities")
    most = small_model.trace(TEXT, TARGET).probabilities.amax(dim=0)[answer["columns"]["ids"]]
    assert most.tolist() == sorted(most.tolist(), reverse=True)
    assert answer["columns"]["pieces"] == small_model.target_tokenizer.pieces(answer["columns"]["ids"])

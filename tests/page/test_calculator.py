"""The calculator shows how each cell comes about: numbers that add up, and equal what PyTorch computes by itself."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from page_server import TEXT, random_model, wait_until
from torch import Tensor, nn
from torch.nn import functional

TOLERANCE = 6e-5  # of numbers with four digits


def shown_number(text: str) -> float:
    return float(text.replace("−", "-").replace("-∞", "-inf"))


def check_sums(view: Any) -> int:
    """What is shown in each table adds up to the shown sum, digit by digit. Return the number of tables."""
    tables = view.locator(".story table")
    for n in range(tables.count()):
        parts = tables.nth(n).locator("tbody .product").all_inner_texts()
        total = tables.nth(n).locator(".total").inner_text()
        assert sum(round(shown_number(each) * 1e4) for each in parts) == round(shown_number(total) * 1e4)
    return int(tables.count())


def cell_value(view: Any) -> float:
    return shown_number(view.locator(".story .value").inner_text())


@pytest.fixture(scope="module")
def activations() -> dict[str, Tensor]:
    """Inputs and outputs of the network's own modules in a fused forward pass, by hooks."""
    model = random_model()
    found: dict[str, Tensor] = {}

    def record(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            found[f"{name}.in"], found[name] = inputs[0][0].detach(), output[0].detach()

        return hook

    for name, module in model.network.named_modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            module.register_forward_hook(record(name))
    answer = model.generate([TEXT], beam=1)[0]
    found["logits"] = model.trace(TEXT, answer.text).logits
    target = model.target_tokenizer.encode(answer.text)
    source = [*model.source_tokenizer.encode(TEXT), 3]
    with torch.no_grad():
        memory = model.network.encode(torch.tensor([source]))
        logits, _ = model.network.step(torch.tensor([[2, *target]]), model.network.start(memory))
    found["logits"] = logits[0]
    for name, parameter in model.network.named_parameters():
        found[f"weight.{name}"] = parameter.detach()
    return found


def test_score_cell_shows_product_scale_mask_and_softmax(visit: Any, activations: dict[str, Tensor]) -> None:
    view = visit.open("calculator", operation="decoder.1.self.scores", head=1, cell="2,1")
    weights = [activations[f"weight.decoder.1.self_attention.project.{name}"] for name in ("weight", "bias")]
    project = functional.linear(activations["decoder.1.self_residual.normalise"], *weights)
    heads, width = 2, project.size(1) // 6
    queries, keys = project.split(heads * width, dim=-1)[:2]
    query, key = queries[2, width:], keys[1, width:]
    products = (query * key).tolist()
    rows = view.locator(".story .terms").first.locator("tbody tr:not(.rest)")
    for n in range(rows.count()):
        dimension, left, right, product = rows.nth(n).locator("th, .number").all_inner_texts()
        at = int(dimension)
        assert (shown_number(left), shown_number(right)) == pytest.approx(
            (float(query[at]), float(key[at])), abs=TOLERANCE
        )
        assert shown_number(product) == pytest.approx(products[at], abs=2 * TOLERANCE)
    shown = [abs(shown_number(each)) for each in rows.locator(".product").all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    total = shown_number(view.locator(".story .terms .total").first.inner_text())
    assert total == pytest.approx(sum(products), abs=TOLERANCE)
    assert cell_value(view) == pytest.approx(sum(products) / width**0.5, abs=TOLERANCE)
    assert check_sums(view) == 2
    scores = torch.tensor([float(query @ keys[n, width:]) / width**0.5 for n in range(3)])
    weights_shown = view.locator(".softmax tbody .product").all_inner_texts()
    for shown_weight, weight in zip(weights_shown[:3], scores.softmax(-1).sort(descending=True)[0], strict=True):
        assert shown_number(shown_weight) == pytest.approx(float(weight), abs=2e-4)
    assert view.locator(".story .own").count() == 1
    assert view.locator(".story math mfrac").count() == 1


def test_hidden_cell_has_weight_zero(visit: Any) -> None:
    view = visit.open("calculator", operation="decoder.0.self.weights", cell="0,1")
    assert view.locator(".story .value").inner_text() == "0.0000"
    assert view.locator(".story .line").nth(1).inner_text().replace("\n", "").endswith("=−∞")
    assert view.locator(".softmax .chosen .number").all_inner_texts() == ["−∞", "0.0000", "0.0000"]
    assert shown_number(view.locator(".softmax .total").inner_text()) == 1


def test_weight_rows_visibly_sum_to_one(visit: Any) -> None:
    view = visit.open("calculator", operation="encoder.1.self.weights")
    texts = view.locator("#result").evaluate("map => map.scene.items.map((each) => each.content)")
    assert texts.count("1.00") == len(TEXT.split()) + 1
    assert "row sum" in texts


def apply_linear(activations: dict[str, Tensor], module: str, x: Tensor) -> Tensor:
    return functional.linear(x, activations[f"weight.{module}.weight"], activations.get(f"weight.{module}.bias"))


def cross_attention(activations: dict[str, Tensor], site: str) -> Tensor:
    """By PyTorch's fused attention, all heads together."""
    inputs = activations[f"{site}_residual.normalise"], activations["encoder_norm"]
    queries, keys, values = (
        apply_linear(activations, f"{site}_attention.project", x).chunk(3, dim=-1)[n].unflatten(-1, (2, -1))
        for n, x in enumerate((*inputs, inputs[1]))
    )
    mixed = functional.scaled_dot_product_attention(*(each.transpose(0, 1) for each in (queries, keys, values)))
    return apply_linear(activations, f"{site}_attention.output", mixed.transpose(0, 1).flatten(1))


EXPECTED: dict[str, Callable[[dict[str, Tensor]], Tensor]] = {
    "encoder.1.feed_forward.inner": lambda found: apply_linear(
        found, "encoder.1.feed_forward.expand", found["encoder.1.feed_forward_residual.normalise"]
    ),
    "decoder.0.feed_forward.output": lambda found: apply_linear(
        found,
        "decoder.0.feed_forward.contract",
        apply_linear(found, "decoder.0.feed_forward.expand", found["decoder.0.feed_forward_residual.normalise"]).relu(),
    ),
    "decoder.1.cross.output": lambda found: cross_attention(found, "decoder.1.cross"),
    "encoder.0.self.norm": lambda found: found["encoder.0.self_residual.normalise"],
    "decoder.output": lambda found: found["decoder_norm"],
    "output.logits": lambda found: found["logits"],
}


@pytest.mark.short(2)
@pytest.mark.parametrize("operation", EXPECTED)
def test_linear_maps_and_norms_equal_the_modules(visit: Any, activations: dict[str, Tensor], operation: str) -> None:
    view = visit.open("calculator", operation=operation)
    expected = EXPECTED[operation](activations)
    shown = view.locator("#result").evaluate("map => ({rows: map.data.rows, values: Array.from(map.data.values)})")
    values = np.array(shown["values"]).reshape(shown["rows"], -1)
    if operation == "output.logits":
        answer = visit.request("/calculation", operation=operation)
        expected = expected[:, answer["columns"]["ids"]]
    np.testing.assert_allclose(values, expected[: values.shape[0], : values.shape[1]].numpy(), atol=1e-4)
    view.locator("#result .map-box").focus()
    for key in ("Home", "ArrowDown", "ArrowRight"):
        visit.page.keyboard.press(key)
    assert view.locator(".story .value").get_attribute("data-cell") == "1,1"
    assert cell_value(view) == pytest.approx(float(expected[1, 1]), abs=TOLERANCE)
    check_sums(view)


def test_every_operation_adds_up(visit: Any) -> None:
    """Walks through the whole pass with the button, in order."""
    answer = visit.request("/operations")
    names = [step["name"] for row in answer["rows"] for step in row["steps"]]
    view = visit.open("calculator", operation=names[0])
    tables = 0
    for n, name in enumerate(names):
        possible = [f"operation-{each}" for each in (name, name.rpartition(".")[0])]
        view.locator(", ".join(f"[id='{each}'][aria-current=true]" for each in possible)).wait_for()
        assert view.locator(".formula-card math").count() == 1
        tables += check_sums(view)
        if n + 1 < len(names):
            view.locator("#operation-after").click()
            visit.wait_drawn("calculator")
    assert view.locator("#operation-after").is_disabled()
    assert tables > len(names) // 2


def test_token_ids_are_integers(visit: Any) -> None:
    view = visit.open("calculator", operation="source.ids")
    texts = view.locator("#result").evaluate("map => map.scene.items.map((each) => each.content)")
    ids = [each for each in texts if each and re.fullmatch(r"\d+", each)]
    assert ids == [str(each) for each in [*random_model().source_tokenizer.encode(TEXT), 3]]
    assert view.locator(".story .value").inner_text() in ids
    view.locator("#result summary").click()
    assert view.locator("#result td").last.inner_text() == "3"


def test_pointing_tells_and_clicking_keeps_a_cell(visit: Any) -> None:
    view = visit.open("calculator", operation="decoder.0.cross.scores")
    layout = view.locator("#result").evaluate("map => map.layout")
    spot = {"x": layout["left"] + 2.5 * layout["wide"], "y": layout["top"] + 1.5 * layout["high"]}
    box = view.locator("#result .map-box")
    box.hover(position=spot)
    assert view.locator(".story .value").get_attribute("data-cell") == "1,2"
    keys = view.locator(".pair heat-map").nth(1)
    assert keys.evaluate("map => map.chosen") == {"row": 2, "column": None}
    visit.page.mouse.move(0, 0)
    assert view.locator(".story .value").get_attribute("data-cell") != "1,2"
    box.click(position=spot)
    visit.page.mouse.move(0, 0)
    assert view.locator(".story .value").get_attribute("data-cell") == "1,2"
    assert "cell=1%2C2" in visit.page.evaluate("location.hash")


def test_head_picker_changes_the_numbers(visit: Any) -> None:
    view = visit.open("calculator", operation="encoder.0.self.scores")
    before = cell_value(view)
    view.locator("#head").select_option("1")
    assert wait_until(lambda: cell_value(view) != before)
    assert view.locator(".story .own").count() == 1


def test_columns_are_shown_in_windows(visit: Any) -> None:
    view = visit.open("calculator", operation="output.probabilities")
    total = random_model().target_tokenizer.vocab_size
    assert total > 32 or view.locator(".pager").count() == 0
    view = visit.open("calculator", text=" ".join(["cat"] * 50), operation="source.input")
    assert "rows 0–31 of 51" in view.locator(".pager").inner_text()
    view.locator("#first_row-more").click()
    assert wait_until(lambda: "rows 32–50 of 51" in view.locator(".pager").inner_text())
    assert view.locator("#result").evaluate("map => map.data.rows") == 19


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_calculator_fits_the_page(visit: Any, width: int, lang: str) -> None:
    visit.page.set_viewport_size({"width": width, "height": 900})
    view = visit.open("calculator", lang=lang, operation="decoder.0.feed_forward.output")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    if lang == "zh":
        title = view.locator(".formula-card h3").inner_text()
        assert title == "解码器 · 第 0 层 · 前馈网络 · 输出"
        assert "feed_forward" not in view.inner_text()

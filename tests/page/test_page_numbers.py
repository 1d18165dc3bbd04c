"""P5: the page shows the numbers of the server."""

import base64
from typing import Any

import numpy as np
import pytest


def format_number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # a rounded zero has no sign


def format_signed(value: float, digits: int) -> str:
    return f"+{format_number(value, digits)}" if round(value, digits) > 0 else format_number(value, digits)


@pytest.mark.slow
def test_maps_match_the_trace(visit: Any) -> None:
    view = visit.open(show="head", layer=1, head=1)
    answer = visit.request("/trace", target=None)
    layout = answer["maps"]["cross"]
    numbers = np.frombuffer(base64.b64decode(answer["block"]), "<f2")
    rows = numbers[layout["offset"] : layout["offset"] + np.prod(layout["shape"])].reshape(layout["shape"])[1, 1]
    view.locator("details.as-table summary").click()
    table = view.locator(".as-table tbody tr")
    table.first.wait_for()
    assert table.evaluate_all("rows => rows.map((row) => row.cells[0].textContent)") == answer["target"]["predicted"]
    found = table.evaluate_all("rows => rows.map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))")
    assert found == [[format_number(float(value)) for value in row] for row in rows]
    entropies = view.locator("[data-number=entropy]").all_inner_texts()
    assert entropies == [format_number(token["entropy"]) for token in answer["tokens"]]


@pytest.mark.slow
def test_mean_and_maximum_are_over_the_selected_heads(visit: Any) -> None:
    answer = visit.request("/trace", target=None)
    layout = answer["maps"]["encoder_self"]
    numbers = np.frombuffer(base64.b64decode(answer["block"]), "<f2").astype(np.float32)
    maps = numbers[layout["offset"] : layout["offset"] + np.prod(layout["shape"])].reshape(layout["shape"])
    for show, layer, expected in (("mean", -1, maps.mean((0, 1))), ("max", 1, maps[1].max(0))):
        view = visit.open(site="encoder_self", show=show, layer=layer)
        values = view.locator("heat-map").evaluate("map => Array.from(map.data.values)")
        assert np.allclose(values, expected.flatten(), atol=1e-6)


def test_head_numbers_match_the_trace(visit: Any) -> None:
    view = visit.open("heads", pins="decoder_self.1.0")
    numbers = visit.request("/trace", target=None)["numbers"]["decoder_self"][1][0]
    for name in ("entropy", "distance", "diagonality", "special"):
        assert view.locator(f"[data-number={name}]").inner_text() == format_number(numbers[name])


def test_rollout_matches_the_server(visit: Any) -> None:
    view = visit.open(show="rollout")
    rollout = visit.request("/trace", target=None)["rollout"]
    values = view.locator("heat-map").evaluate("map => Array.from(map.data.values)")
    assert np.allclose(values, rollout["values"], atol=1e-6)


def test_steps_show_their_probabilities(visit: Any) -> None:
    view = visit.open("steps", step=1)
    step = visit.request("/steps", prefix=[])["steps"][1]
    assert view.locator("[data-number='steps.entropy']").inner_text() == format_number(step["entropy"], 4)
    assert view.locator("[data-number='steps.cache']").inner_text() == str(step["cache"])
    *names, others = view.locator(".bars .name").all_inner_texts()
    assert names == [each["piece"] for each in step["top"]]
    assert "other tokens" in others
    assert view.locator(".bars .number").first.inner_text() == f"{step['top'][0]['probability'] * 100:.1f} %"


def test_beam_ranking_matches_the_server(visit: Any) -> None:
    view = visit.open("tree", kind="beam", beam=3)
    ranking = visit.request("/tree", decoder={"kind": "beam", "beam": 3, "n_best": 3, "length_penalty": 1})["ranking"]
    assert view.locator("[data-number=score]").all_inner_texts() == [
        format_number(each["score"], 4) for each in ranking
    ]
    assert view.locator("[data-number=log]").all_inner_texts() == [
        format_number(each["log_probability"], 4) for each in ranking
    ]


@pytest.mark.slow
def test_losses_with_and_without_mask_match_the_server(visit: Any) -> None:
    view = visit.open("mask", mask_layer=1, mask_head=1)
    answer = visit.request("/mask", target=None, layer=1, head=1)
    assert shown_numbers(view) == {"loss": format_number(answer["loss"], 4)}  # the rest answers the question below it
    after = (
        view.locator("heat-map")
        .nth(2)
        .evaluate("map => Array.from(map.data.values, (v) => Number.isNaN(v) ? null : v)")
    )
    expected = [value for row in answer["after"] for value in row]
    assert [value is None for value in after] == [value is None for value in expected]
    assert np.allclose([v for v in after if v is not None], [v for v in expected if v is not None], atol=1e-4)
    view.locator("#look").click()
    view.locator("[data-number=lossOff]").wait_for()
    assert shown_numbers(view) == {
        "loss": format_number(answer["loss_usual"], 4),
        "lossOff": format_number(answer["loss_unmasked"], 4),
        "change": format_signed(answer["loss_unmasked"] - answer["loss_usual"], 4),
    }


def shown_numbers(view: Any) -> dict[str, str]:
    """The numbers above the maps, by name."""
    found = view.locator(".figures [data-number]")
    return dict(found.evaluate_all("all => all.map((each) => [each.dataset.number, each.textContent])"))


def test_norms_of_operations_match_the_server(visit: Any) -> None:
    view = visit.open("calculator")
    rows = visit.request("/operations", target=None)["rows"]
    view.locator(".all-operations summary").click()
    assert view.locator("[data-number=norm_in]").all_inner_texts() == [format_number(row["norm_in"], 2) for row in rows]
    assert view.locator("[data-number=norm_out]").all_inner_texts() == [
        format_number(row["norm_out"], 2) for row in rows
    ]


def test_effect_of_a_head_matches_the_server(visit: Any) -> None:
    view = visit.open("ablation", heads="decoder.0.cross.0=0")
    answer = visit.request("/ablate", target=None, heads={"decoder.0.cross": {"0": 0}})
    assert view.locator("[data-number=delta]").inner_text() == format_signed(answer["delta"], 4)
    assert view.locator("[data-number=before]").inner_text() == format_number(answer["before"]["log_probability"], 4)
    changes = [
        format_signed(new["log_probability"] - old["log_probability"], 3)
        for old, new in zip(answer["before"]["tokens"], answer["after"]["tokens"], strict=True)
    ]
    assert view.locator(".diverging td:nth-child(3)").all_inner_texts() == changes

"""Redrawing the page keeps text and focus, and invalid values in an address are ignored or reported."""

from typing import Any

import pytest
from error_codes import fragment, message
from page_server import VIEWS

from attendo.serve.explorer.schemas import ExplorerDecodingOptions

# Invalid addresses that a link may contain.
INVALID_STATES: dict[str, dict[str, Any]] = {
    "home": {
        "module": "decoder.9.cross",
        "follow": "encoder.99",
        "unfolded": "all,,x.y",
        "step": -5,
        "teacher": "maybe",
        "head": 9,
    },
    "alignment": {"site": "nowhere", "show": "head", "layer": 99, "head": -7, "words": "maybe"},
    "heads": {"pins": "cross.9.9,,x.y.z,cross.0", "badge": "beauty", "layers": "a,,1.5", "stretch": "yes"},
    "steps": {"step": 999, "prefix": '{"a": 1}'},
    "tree": {"beam": "1e99", "kind": "widest", "cuts": "?"},
    "mask": {"mask_off": "2", "mask_layer": "NaN", "mask_head": ""},
    "calculator": {"operation": "no.such", "cell": "x,99", "head": -3, "first_row": 999, "first_column": -1},
    "ablation": {"heads": ",,"},
    "representations": {"rep": "units", "rep_stack": "both", "rep_layer": 99, "rep_side": "middle"},
    "compare": {"versus": "everything", "other": "", "same": "no", "site": "encoder_self", "show": "rollout"},
    "training": {"curve": "__proto__", "film": -3},
}


@pytest.mark.short(2)
@pytest.mark.parametrize("change", ["#language", "#theme", "#kind-beam", "#tab-heads"])
def test_typed_text_is_kept_when_the_page_changes(visit: Any, change: str) -> None:
    page = visit.page
    visit.open()
    page.fill("#source", "not sent yet")
    page.locator(change).click()
    visit.wait_drawn("heads" if change == "#tab-heads" else "alignment")
    assert page.input_value("#source") == "not sent yet"
    assert "not+sent" not in page.evaluate("location.hash")
    if change == "#theme":
        for _ in range(2):  # cycle back to the first theme
            page.click("#theme")


def test_sample_replaces_the_typed_text(visit: Any) -> None:
    page = visit.page
    visit.open()
    page.fill("#source", "not sent yet")
    page.locator("#sample-1").click()
    visit.wait_drawn("alignment")
    assert page.input_value("#source") == "the cat sat"


def test_typed_token_is_kept_between_steps(visit: Any) -> None:
    view = visit.open("steps")
    view.locator("#other-piece").fill("坐")
    visit.page.click("#after")
    visit.page.wait_for_function("() => document.getElementById('step').value === '1'")
    assert view.locator("#other-piece").input_value() == "坐"


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("view", "control", "keys"),
    [
        ("alignment", "#site", ["ArrowUp"]),
        ("alignment", "#specials", ["Space"]),
        ("alignment", "#kind-greedy", ["ArrowRight"]),
        ("alignment", "#language", ["Enter"]),
        ("alignment", "#tab-tree", ["Enter"]),
        ("heads", "#badge", ["ArrowDown"]),
        ("heads", "#grid", ["ArrowRight", "Enter"]),
        ("steps", "#after", ["Enter"]),
        ("steps", "#could-1", ["Enter"]),
        ("tree", "#cuts", ["Space"]),
        ("mask", "#mask_off", ["Space"]),
        ("calculator", "#operation-after", ["Enter"]),
        ("calculator", "[id='operation-encoder.0.self']", ["Enter"]),
        ("ablation", "#grid-cross", ["ArrowRight", "Enter"]),
        ("compare", "#versus-checkpoints", ["ArrowRight"]),
        ("training", "#curve-loss", ["ArrowRight"]),
    ],
)
def test_focus_stays_on_a_used_control(visit: Any, view: str, control: str, keys: list[str]) -> None:
    page = visit.page
    visit.open(view)
    page.locator(control).focus()
    for key in keys:
        page.keyboard.press(key)
    shown = "tree" if control == "#tab-tree" else view
    visit.wait_drawn(shown)
    page.wait_for_function("() => document.activeElement !== document.body")
    focused = page.evaluate("document.activeElement.id || document.activeElement.className")
    group = control.strip("#[]'").removeprefix("id='").split("-")[0]
    assert focused.split("-")[0] == group, focused


@pytest.mark.short(3)
@pytest.mark.parametrize("view", VIEWS)
def test_invalid_values_in_the_address_are_ignored(visit: Any, view: str) -> None:
    found = visit.open(view, **INVALID_STATES[view])
    assert found.locator(".complaint").count() == 0
    assert visit.page.locator(f"#tab-{view}").get_attribute("aria-current") == "page"


def test_unknown_view_opens_the_first_one(visit: Any) -> None:
    visit.open("heads")
    visit.page.evaluate("location.hash = 'view=constructor&lang=en'")
    visit.wait_drawn("home")
    assert visit.page.locator("#tab-home").get_attribute("aria-current") == "page"


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("view", "state", "error"),
    [
        ("alignment", {"kind": "beam", "beam": 99}, message("field_less_than_equal", name="decoder.beam", le=12)),
        ("alignment", {"layers": "7"}, fragment("unknown_layer", layer=7)),
        ("alignment", {"heads": "decoder.9.cross.0=0"}, fragment("unknown_site")),
        ("ablation", {"heads": "decoder.0.cross.9=0"}, fragment("unknown_head")),
        ("mask", {"mask_layer": 9}, fragment("unknown_layer", layer=9)),
        ("steps", {"prefix": '["nobody"]'}, fragment("unknown_piece", piece="nobody")),
        ("compare", {"versus": "checkpoints", "other": "step-1"}, fragment("unknown_checkpoint", name="step-1")),
    ],
)
def test_server_errors_are_shown_with_a_retry(visit: Any, view: str, state: dict[str, Any], error: str) -> None:
    found = visit.open(view, **state)
    assert error in found.locator(".complaint").inner_text()
    visit.page.locator(f"#tab-{view}").wait_for()
    assert found.locator(".retry").is_visible()
    visit.ignore_errors("status of 4")


def test_page_limits_are_within_server_limits(visit: Any) -> None:
    """The page may offer a smaller range than the server, never a larger one."""
    page = visit.page
    bounds: dict[str, tuple[float, float]] = {}
    for kind in ("beam", "sample"):
        visit.open(kind=kind)
        found = page.locator(".translate input[type=number]").evaluate_all(
            "all => all.map((each) => [each.id, Number(each.min), Number(each.max)])"
        )
        bounds |= {name: (low, high) for name, low, high in found}
    assert set(bounds) == {*("beam", "n_best", "length_penalty", "max_length"), "temperature", "top_k", "top_p", "seed"}
    for name, (low, high) in bounds.items():
        for value in (low, high):
            if (name, value) != ("max_length", 0):  # 0 means no limit and is not sent
                ExplorerDecodingOptions.model_validate({"kind": "sample", name: value if value % 1 else int(value)})
    for name in ("beam", "n_best", "max_length"):
        with pytest.raises(ValueError, match=name):
            ExplorerDecodingOptions.model_validate({name: int(bounds[name][1]) + 1})

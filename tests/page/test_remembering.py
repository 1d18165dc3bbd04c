"""What a person has done stays when the page is drawn anew, and what an address says is never more than it can mean."""

from typing import Any

import pytest
from error_codes import fragment, message
from page_server import VIEWS

from attendo.serve.explorer.schemas import ExplorerDecodingOptions

# Addresses that nobody would write, and that somebody's link may hold all the same.
STRANGE: dict[str, dict[str, Any]] = {
    "alignment": {"site": "nowhere", "show": "head", "layer": 99, "head": -7, "words": "maybe"},
    "heads": {"pins": "cross.9.9,,x.y.z,cross.0", "badge": "beauty", "layers": "a,,1.5", "stretch": "yes"},
    "steps": {"step": 999, "prefix": '{"a": 1}'},
    "tree": {"beam": "1e99", "kind": "widest", "cuts": "?"},
    "mask": {"mask_off": "2", "mask_layer": "NaN", "mask_head": ""},
    "ledger": {"row": "no such row", "part": "tail", "position": -99},
    "ablation": {"heads": ",,"},
    "compare": {"versus": "everything", "other": "", "same": "no", "site": "encoder_self", "show": "rollout"},
    "training": {"curve": "__proto__", "film": -3},
}


@pytest.mark.short(2)
@pytest.mark.parametrize("change", ["#language", "#theme", "#kind-beam", "#tab-heads"])
def test_what_was_typed_and_not_sent_stays(visit: Any, change: str) -> None:
    page = visit.page
    visit.open()
    page.fill("#source", "not sent yet")
    page.locator(change).click()
    visit.drawn("heads" if change == "#tab-heads" else "alignment")
    assert page.input_value("#source") == "not sent yet"
    assert "not+sent" not in page.evaluate("location.hash")
    if change == "#theme":
        for _ in range(2):  # round to where it was
            page.click("#theme")


def test_a_sample_takes_the_place_of_what_was_typed(visit: Any) -> None:
    page = visit.page
    visit.open()
    page.fill("#source", "not sent yet")
    page.locator("#sample-1").click()
    visit.drawn("alignment")
    assert page.input_value("#source") == "the cat sat"


def test_a_token_that_is_being_typed_stays_from_step_to_step(visit: Any) -> None:
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
        ("ledger", "#row-2", ["Enter"]),
        ("ablation", "#grid-cross", ["ArrowRight", "Enter"]),
        ("compare", "#versus-checkpoints", ["ArrowRight"]),
        ("training", "#curve-loss", ["ArrowRight"]),
    ],
)
def test_the_focus_stays_where_it_was_when_a_control_is_used(
    visit: Any, view: str, control: str, keys: list[str]
) -> None:
    page = visit.page
    visit.open(view)
    page.locator(control).focus()
    for key in keys:
        page.keyboard.press(key)
    shown = "tree" if control == "#tab-tree" else view
    visit.drawn(shown)
    page.wait_for_function("() => document.activeElement !== document.body")
    focused = page.evaluate("document.activeElement.id || document.activeElement.className")
    group = control.strip("#").split("-")[0]
    assert focused.split("-")[0] == group, focused


@pytest.mark.short(3)
@pytest.mark.parametrize("view", VIEWS)
def test_an_address_that_cannot_be_meant_is_drawn_as_far_as_it_can(visit: Any, view: str) -> None:
    found = visit.open(view, **STRANGE[view])
    assert found.locator(".complaint").count() == 0
    assert visit.page.locator(f"#tab-{view}").get_attribute("aria-current") == "page"


def test_a_view_that_is_none_is_the_first(visit: Any) -> None:
    visit.open("heads")
    visit.page.evaluate("location.hash = 'view=constructor&lang=en'")
    visit.drawn("alignment")
    assert visit.page.locator("#tab-alignment").get_attribute("aria-current") == "page"


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("view", "state", "words"),
    [
        ("alignment", {"kind": "beam", "beam": 99}, message("field_less_than_equal", name="decoder.beam", le=12)),
        ("alignment", {"layers": "7"}, fragment("unknown_layer", layer=7)),
        ("alignment", {"heads": "decoder.9.cross.0=0"}, fragment("unknown_site")),
        ("ablation", {"heads": "decoder.0.cross.9=0"}, fragment("unknown_head")),
        ("mask", {"mask_layer": 9}, fragment("unknown_layer", layer=9)),
        ("ledger", {"position": 99}, fragment("unknown_step", step=99)),
        ("steps", {"prefix": '["nobody"]'}, fragment("unknown_piece", piece="nobody")),
        ("compare", {"versus": "checkpoints", "other": "step-1"}, fragment("unknown_checkpoint", name="step-1")),
    ],
)
def test_what_the_server_does_not_have_is_told_with_a_way_back(
    visit: Any, view: str, state: dict[str, Any], words: str
) -> None:
    found = visit.open(view, **state)
    assert words in found.locator(".complaint").inner_text()
    visit.page.locator(f"#tab-{view}").wait_for()
    assert found.locator(".retry").is_visible()
    visit.forgive("status of 4")


def test_the_limits_of_the_page_are_those_of_the_server(visit: Any) -> None:
    """The page may offer less, never more: what it offers is not refused."""
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
            if (name, value) != ("max_length", 0):  # none is asked for then
                ExplorerDecodingOptions.model_validate({"kind": "sample", name: value if value % 1 else int(value)})
    for name in ("beam", "n_best", "max_length"):
        with pytest.raises(ValueError, match=name):
            ExplorerDecodingOptions.model_validate({name: int(bounds[name][1]) + 1})

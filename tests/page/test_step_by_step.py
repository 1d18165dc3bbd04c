"""Step by step: attention, a distribution to reshape, the forced answer beside the free one, label smoothing."""

import math
import re
from typing import Any

import pytest
import torch
from page_server import TEXT, random_model, wait_until

from attendo.decode.strategies import SamplingFilter, gumbel_noise, hash64
from attendo.text import BOS, EOS, PAD

SETTINGS = [(1.0, 0, 1.0), (0.3, 0, 1.0), (2.5, 0, 1.0), (1.0, 3, 1.0), (1.0, 0, 0.6), (1.7, 7, 0.8), (0.05, 1, 0.05)]
SIZES = [("en", 1440), ("zh", 1024), ("en", 390), ("zh", 390)]


def raw_log_probs(visit: Any, step: int) -> torch.Tensor:
    """The log-probabilities at a step of the greedy answer, computed here. Decoding forbids PAD and BOS."""
    model = random_model()
    chosen = [each["chosen_id"] for each in visit.request("/steps")["steps"]]
    source = torch.tensor([[*model.source_tokenizer.encode(TEXT), EOS]])
    with torch.inference_mode():
        network = model.network.eval()
        logits, _ = network.step(torch.tensor([[BOS, *chosen[:step]]]), network.start(network.encode(source)))
    log_probs = logits[0, -1].float().log_softmax(-1)
    log_probs[[PAD, BOS]] = -math.inf
    return log_probs


def expected_shares(log_probs: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    return SamplingFilter(temperature, top_k, top_p)(log_probs[None])[0].softmax(-1)


def set_slider(page: Any, name: str, value: float, release: bool = True) -> None:
    page.evaluate(
        """([id, value, release]) => { const slider = document.getElementById(id); slider.value = String(value);
        slider.dispatchEvent(new Event('input', { bubbles: true }));
        if (release) slider.dispatchEvent(new Event('change', { bubbles: true })); }""",
        [f"shape-{name}", value, release],
    )


def bar_shares(page: Any) -> dict[int, float]:
    found = page.locator("step-distribution .bars button").evaluate_all(
        "all => all.map((each) => [Number(each.dataset.token), Number(each.dataset.share)])"
    )
    return {int(token): share for token, share in found}


def wait_ready(page: Any) -> None:
    page.locator("step-distribution[data-ready=true]").wait_for()


def test_filters_and_noise_of_the_page_are_those_of_the_library(visit: Any) -> None:
    """Random distributions of several sizes, with ties and forbidden tokens."""
    visit.open("steps")
    generator = torch.Generator().manual_seed(3)
    for size in (5, 40, 700):
        logits = torch.randn(size, generator=generator) * 3
        logits[: size // 4] = logits[0]
        logits[1] = -math.inf
        log_probs = logits.log_softmax(-1)
        for temperature, top_k, top_p in SETTINGS:
            shares, drawn = visit.page.evaluate(
                """async ([logs, options]) => {
                  const { shape, draw } = await import('/page/sampling.js');
                  const shaped = shape(Float32Array.from(logs, (each) => each ?? -Infinity), options);
                  return [[...shaped], [0, 1, 12345].map((seed) => [0, 4].map((length) =>
                    draw(shaped, seed, 2, length)))];
                }""",
                [
                    [None if each == -math.inf else each for each in log_probs.tolist()],
                    {"temperature": temperature, "top_k": top_k, "top_p": top_p},
                ],
            )
            expected = expected_shares(log_probs, temperature, top_k, top_p)
            assert shares == pytest.approx(expected.tolist(), abs=2e-6)
            for seed, row in zip((0, 1, 12345), drawn, strict=True):
                for length, token in zip((0, 4), row, strict=True):
                    key = hash64(hash64(hash64(torch.tensor([2]) + seed * 0x10001)) + length)
                    assert token == int((expected.log() + gumbel_noise(key, size)[0]).argmax())


@pytest.mark.parametrize(("language", "width"), SIZES)
def test_sliders_reshape_the_bars_at_once(visit: Any, language: str, width: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    visit.open("steps", lang=language, step=1)
    wait_ready(page)
    log_probs = raw_log_probs(visit, 1)
    requests: list[str] = []

    def note(request: Any) -> None:
        if "/api/" in request.url and "/vocabulary" not in request.url:
            requests.append(request.url)

    page.on("request", note)
    for temperature, top_k, top_p in SETTINGS:
        for name, value in (("temperature", temperature), ("top_k", top_k), ("top_p", top_p)):
            set_slider(page, name, value)
        expected = expected_shares(log_probs, temperature, top_k, top_p)
        shown = bar_shares(page)
        assert len(shown) == 10
        assert shown == pytest.approx({token: float(expected[token]) for token in shown}, abs=1e-5)
        others = page.locator("step-distribution .rest").get_attribute("data-share")
        assert float(others) == pytest.approx(1 - sum(shown.values()), abs=1e-9)
        kept = int((expected_shares(log_probs.double(), temperature, top_k, top_p) > 0).sum())
        notes = page.locator("step-distribution .note").all_inner_texts()
        assert any(re.search(rf"(?<!\d){kept}(?!\d)", each) for each in notes), (kept, notes)
    page.remove_listener("request", note)
    assert requests == [], "a greedy answer does not depend on them"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("#shape-reset")
    assert wait_until(lambda: page.locator("#shape-temperature").input_value() == "1")
    shown = bar_shares(page)
    assert shown == pytest.approx({token: float(log_probs.exp()[token]) for token in shown}, abs=1e-5)
    assert "temperature" not in page.evaluate("location.hash")


def test_a_slider_previews_while_it_is_dragged_and_the_address_follows_when_it_is_released(visit: Any) -> None:
    page = visit.page
    visit.open("steps", step=1)
    wait_ready(page)
    before = bar_shares(page)
    set_slider(page, "temperature", 2.5, release=False)
    assert bar_shares(page) != before
    assert "temperature" not in page.evaluate("location.hash")
    set_slider(page, "temperature", 2.5)
    assert "temperature=2.5" in page.evaluate("location.hash")
    page.focus("#shape-temperature")
    page.keyboard.press("ArrowLeft")
    assert wait_until(lambda: "temperature=2.45" in page.evaluate("location.hash"))
    assert page.evaluate("document.activeElement.id") == "shape-temperature"


def test_the_sampled_token_is_that_of_the_sampler(visit: Any) -> None:
    """In an answer that is sampled with the same settings, each token is the one that its step says."""
    page = visit.page
    decoder = {"temperature": 2.0, "top_k": 9}
    answers = {
        seed: visit.request("/steps", decoder={"kind": "sample", "seed": seed, **decoder})["steps"] for seed in range(9)
    }
    seed, steps = max(answers.items(), key=lambda each: len({step["chosen_id"] for step in each[1]}))
    assert any(step["chosen_id"] != step["top"][0]["id"] for step in steps)
    for number, step in enumerate(steps):
        visit.open("steps", kind="sample", step=number, seed=seed, **decoder)
        wait_ready(page)
        assert page.locator("[data-sampled]").get_attribute("data-sampled") == str(step["chosen_id"])
        assert wait_until(lambda step=step: page.locator("[data-sampled]").inner_text() == step["chosen"])


def test_another_seed_or_temperature_samples_a_sampled_answer_again(visit: Any) -> None:
    page = visit.page
    visit.open("steps", kind="sample", seed=5, temperature=2)
    wait_ready(page)
    page.fill("#shape-seed", "6")
    page.press("#shape-seed", "Tab")
    expected = visit.request("/steps", decoder={"kind": "sample", "seed": 6, "temperature": 2, "top_k": 0, "top_p": 1})
    read = "document.querySelector('view-steps').data?.text"
    assert wait_until(lambda: page.evaluate(read) == expected["text"])
    set_slider(page, "temperature", 0.05)
    expected = visit.request("/steps", decoder={"kind": "sample", "seed": 6, "temperature": 0.05})
    assert wait_until(lambda: page.evaluate(read) == expected["text"])
    assert wait_until(lambda: page.locator("#temperature").input_value() == "0.05"), "the bar above follows"


def test_a_logarithmic_scale_changes_the_bars_and_not_the_numbers(visit: Any) -> None:
    page = visit.page
    visit.open("steps", step=1)
    wait_ready(page)
    before = bar_shares(page)
    page.locator("#logarithmic").click()
    wait_ready(page)
    assert bar_shares(page) == before
    widths = page.locator("step-distribution .bars button .fill").evaluate_all(
        "all => all.map((each) => parseFloat(each.style.width) / 100)"
    )
    expected = [max(0.0, 1 + math.log10(share) / 6) for share in before.values()]
    assert widths == pytest.approx(expected, abs=1e-4)
    assert "logarithmic=true" in page.evaluate("location.hash")


@pytest.mark.parametrize(("language", "width"), SIZES)
def test_attention_of_the_step_is_that_of_the_trace(visit: Any, language: str, width: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    target = visit.request("/steps")["text"]
    maps = random_model().trace(TEXT, target)
    for show, layer, head in (("mean", -1, 0), ("mean", 1, 0), ("head", 1, 1), ("max", -1, 0)):
        for step in (0, 2):
            visit.open("steps", lang=language, step=step, show=show, layer=layer, head=head)
            for site, tensor in (("cross", maps.cross), ("decoder_self", maps.decoder_self)):
                chosen = tensor[layer, head][None] if show == "head" else tensor if layer < 0 else tensor[layer]
                rows = chosen.reshape(-1, *tensor.shape[-2:])
                expected = (rows.amax(0) if show == "max" else rows.mean(0))[step]
                expected = expected if site == "cross" else expected[: step + 1]
                found = page.locator(f".weights[data-site={site}] li").evaluate_all(
                    "all => all.map((each) => Number(each.dataset.weight))"
                )
                assert found == pytest.approx(expected.tolist(), abs=1e-3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("language", "width"), SIZES)
def test_the_free_answer_stands_beside_the_forced_one(visit: Any, language: str, width: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    view = visit.open("steps", lang=language, step=1)
    free = visit.request("/steps")
    other = free["steps"][1]["top"][4]
    page.locator(f"step-distribution [data-token='{other['id']}']").click()
    view.locator(".branches").wait_for()
    forced = visit.request("/steps", prefix=[free["steps"][0]["chosen_id"], other["id"]])
    rows = view.locator(".branches").evaluate(
        "all => [1, 2].map((row) => [...all.querySelectorAll('.token')]"
        ".filter((each) => each.style.gridRow.startsWith(row)).map((each) => each.textContent))"
    )
    assert rows == [[each["chosen"] for each in answer["steps"]] for answer in (forced, free)]
    assert view.locator(".branches .token.forced").all_inner_texts() == [other["piece"]], "only the forced one"
    assert view.locator(".branches .token.parted").count() == 1
    totals = [f"{answer['log_probability']:.2f}".replace("-", "−") for answer in (forced, free)]
    assert [each.split()[-1] for each in view.locator(".branch small").all_inner_texts()] == totals
    assert view.locator(".free-bars li").count() == 5
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    view.locator("#token-2").click()
    wait_ready(page)
    second = forced["steps"][2]["top"][3]
    page.locator(f"step-distribution [data-token='{second['id']}']").click()
    assert wait_until(lambda: view.locator(".branches .token.forced").count() == 2)
    assert "forced=1%2C2" in page.evaluate("location.hash")
    page.click("#free")
    page.wait_for_function("() => !document.querySelector('.branches')")


def test_an_address_without_places_marks_the_last_forced_token(visit: Any) -> None:
    steps = visit.request("/steps")["steps"]
    view = visit.open("steps", prefix=f"[{steps[0]['chosen_id']}, {steps[1]['top'][4]['id']}]")
    assert view.locator(".branches .token.forced").all_inner_texts() == [steps[1]["top"][4]["piece"]]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_one_line_says_what_label_smoothing_lets_a_model_reach(visit: Any, language: str) -> None:
    visit.open("steps", lang=language)
    wait_ready(visit.page)
    count = random_model().target_tokenizer.vocab_size
    text = visit.page.locator("#smoothing").inner_text()
    assert f"{1 - 0.1 + 0.1 / count:.1%}".replace("%", " %") in text
    assert str(count) in text


def test_a_sampled_token_outside_the_list_has_its_name(visit: Any) -> None:
    page = visit.page
    visit.open("steps", step=1, temperature=3)
    wait_ready(page)
    pieces = random_model().target_tokenizer.pieces(range(random_model().target_tokenizer.vocab_size))
    shown = set(bar_shares(page))
    for seed in range(60):
        page.fill("#shape-seed", str(seed))
        page.press("#shape-seed", "Enter")
        token = int(page.locator("[data-sampled]").get_attribute("data-sampled"))
        if token not in shown:
            assert wait_until(lambda token=token: page.locator("[data-sampled]").inner_text() == pieces[token])
            return
    pytest.fail("no seed samples one of the other tokens")


@pytest.mark.parametrize("width", [390, 1440])
def test_the_smallest_share_of_attention_is_not_cut_off(visit: Any, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 844})
    view = visit.open("steps", step=1)
    weights = view.locator("ol.weights").first
    weights.locator(".number").first.evaluate("number => { number.textContent = '< 0.01 %'; }")
    assert weights.evaluate("list => list.scrollWidth <= list.clientWidth")
    number, row = (weights.locator(each).first.bounding_box() for each in (".number", "li"))
    assert number["x"] + number["width"] <= row["x"] + row["width"]

"""Colour scales are monotonic, and digits have contrast on every colour."""

import pytest

from attendo.explore.attention_map import (
    DARK,
    DARK_INKS,
    LIGHT,
    LIGHT_INKS,
    STRONG_LEVEL,
    TOP_LEVEL,
    colour_level,
    is_strong,
)


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 0), (0.5, 25), (1.0, TOP_LEVEL), (1.01, TOP_LEVEL)])
def test_level_covers_the_scale(weight: float, expected: int) -> None:
    assert colour_level(weight) == expected


def test_lightness_falls_on_the_light_scale_and_rises_on_the_dark_one() -> None:
    light, dark = [_luminance(colour) for colour in LIGHT], [_luminance(colour) for colour in DARK]
    assert len(light) == len(dark) == TOP_LEVEL + 1
    assert light == sorted(set(light), reverse=True)
    assert dark == sorted(set(dark))


@pytest.mark.parametrize(("scale", "inks"), [(LIGHT, LIGHT_INKS), (DARK, DARK_INKS)])
def test_ink_has_contrast_of_three_or_more_on_every_colour(scale: tuple[str, ...], inks: tuple[str, str]) -> None:
    contrasts = [_contrast(colour, inks[step >= STRONG_LEVEL]) for step, colour in enumerate(scale)]
    assert min(contrasts) >= 3


def test_strong_weights_use_the_other_ink() -> None:
    assert not is_strong(0.4)
    assert is_strong(0.6)


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

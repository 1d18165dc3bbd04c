"""Shapes are checked where a test asks for it, and the parts that are checked are those of the package."""

from collections.abc import Iterator

import jaxtyping
import pytest
import shape_checks
import torch

from attendo.nn.masks import padding_mask

DEEP = torch.ones(2, 3, 4, dtype=torch.bool)  # a mask has one row for each sentence


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = jaxtyping.config.jaxtyping_disable
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.mark.skipif(shape_checks.WISH == "off", reason="shapes are not checked at all")
@pytest.mark.parametrize("place", ["unit/nn/test_masks.py", "unit/train/test_update.py", "golden/test_shift.py"])
def test_beside_the_network_a_wrong_shape_is_an_error(place: str) -> None:
    shape_checks.switch(shape_checks.TESTS / place)
    with pytest.raises(jaxtyping.TypeCheckError, match="padding_mask"):
        padding_mask(DEEP)


@pytest.mark.skipif(shape_checks.WISH != "near", reason="shapes are checked everywhere or nowhere")
@pytest.mark.parametrize("place", ["unit/serve/scheduling/test_health.py", "properties/test_batches.py"])
def test_elsewhere_nobody_looks(place: str) -> None:
    shape_checks.switch(shape_checks.TESTS / place)
    padding_mask(DEEP)


def test_places_and_parts_exist() -> None:
    assert all((shape_checks.TESTS / place).exists() for place in shape_checks.NEAR)
    package = shape_checks.TESTS.parent / "attendo"
    assert all((package / part).is_dir() for part in shape_checks.PARTS)

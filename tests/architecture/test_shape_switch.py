"""Shape checks are on only in the chosen test files, and the checked parts exist in the package."""

from collections.abc import Iterator

import jaxtyping
import pytest
import shape_checks
import torch

from attendo.nn.masks import padding_mask

THREE_DIMENSIONAL = torch.ones(2, 3, 4, dtype=torch.bool)  # a padding mask has 2 dimensions


@pytest.fixture(autouse=True)
def restore_switch() -> Iterator[None]:
    before = jaxtyping.config.jaxtyping_disable
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.mark.skipif(shape_checks.MODE == "off", reason="shapes are not checked at all")
@pytest.mark.parametrize("test_file", ["unit/nn/test_masks.py", "unit/train/test_update.py", "golden/test_shift.py"])
def test_network_tests_reject_a_wrong_shape(test_file: str) -> None:
    shape_checks.switch(shape_checks.TESTS / test_file)
    with pytest.raises(jaxtyping.TypeCheckError, match="padding_mask"):
        padding_mask(THREE_DIMENSIONAL)


@pytest.mark.skipif(shape_checks.MODE != "near", reason="shapes are checked everywhere or nowhere")
@pytest.mark.parametrize("test_file", ["unit/serve/scheduling/test_monitoring.py", "properties/test_batches.py"])
def test_other_tests_do_not_check_shapes(test_file: str) -> None:
    shape_checks.switch(shape_checks.TESTS / test_file)
    padding_mask(THREE_DIMENSIONAL)


def test_checked_files_and_parts_exist() -> None:
    assert all((shape_checks.TESTS / test_file).exists() for test_file in shape_checks.NEAR)
    package = shape_checks.TESTS.parent / "attendo"
    assert all((package / part).is_dir() for part in shape_checks.PARTS)

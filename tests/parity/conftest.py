"""Caches position tables of transformers by size: an export builds six of them, and each takes 0.1 s."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
import torch
from torch import Tensor

KINDS = {"marian": "MarianSinusoidalPositionalEmbedding", "pegasus": "PegasusSinusoidalPositionalEmbedding"}


@pytest.fixture(autouse=True)
def cached_positions() -> None:
    """Patch only networks that an earlier test has imported."""
    for name, kind in KINDS.items():
        embedding = getattr(sys.modules.get(f"transformers.models.{name}.modeling_{name}"), kind, None)
        create = getattr(embedding, "create_weight", None)
        if embedding is not None and create is not None and not hasattr(create, "__wrapped__"):
            embedding.create_weight = cache_by_size(create)


def cache_by_size(create: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
    tables: dict[Any, Tensor] = {}

    @wraps(create)
    def create_once(embedding: Any) -> Tensor:
        key = (embedding.weight.shape, embedding.weight.dtype, torch.get_default_device())
        if key not in tables:
            tables[key] = create(embedding)
        return tables[key].clone()

    return create_once

"""Session-scoped fixtures: a small random model and a server on it."""

import pytest
from small_server import SmallServer, random_model

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text_model import TextModel


@pytest.fixture(scope="session")
def small_model() -> TextModel:
    return random_model()


@pytest.fixture(scope="session")
def server(small_model: TextModel) -> SmallServer:
    return SmallServer(ModelSpec("small", small_model))

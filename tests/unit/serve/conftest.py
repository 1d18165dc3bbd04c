"""One small server for all tests of a module."""

import pytest
from small_server import Asking, random_model

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text_model import TextModel


@pytest.fixture(scope="session")
def small_model() -> TextModel:
    return random_model()


@pytest.fixture(scope="session")
def server(small_model: TextModel) -> Asking:
    return Asking(ModelSpec("small", small_model))

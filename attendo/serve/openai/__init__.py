"""OpenAI's API: models, chat completions and completions, whole or streamed."""

from attendo.serve.openai.endpoints import routes

__all__ = ["routes"]

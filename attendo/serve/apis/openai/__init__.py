"""OpenAI's API: models, chat completions and completions, whole or streamed."""

from attendo.serve.apis.openai.routes import routes

__all__ = ["routes"]

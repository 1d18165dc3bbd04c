"""OpenAI's API: models, chat completions and completions, with or without streaming."""

from attendo.serve.apis.openai.routes import routes

__all__ = ["routes"]

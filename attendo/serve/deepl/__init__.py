"""DeepL's API, version 2: texts, documents, languages, usage, and the glossaries that there are none of."""

from attendo.serve.deepl.endpoints import routes

__all__ = ["routes"]

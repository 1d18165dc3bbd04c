"""Documents that are sent as files: kept for a while, translated in the background, fetched once."""

from attendo.serve.documents.document import Document
from attendo.serve.documents.registry import Documents

__all__ = ["Document", "Documents"]

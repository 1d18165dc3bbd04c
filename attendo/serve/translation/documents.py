"""Document translation: scratch files and background jobs."""

import asyncio
import contextvars
import fcntl
import hmac
import os
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from attendo.errors import UsageError
from attendo.serve.http.bodies import parse_form
from attendo.serve.http.errors import ApiError, to_api_error
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.translation.formats import Draft, read_document
from attendo.serve.translation.segmenter import SegmentedText
from attendo.serve.translation.translator import SentenceHypothesis, detect_source_language, translate_sentences
from attendo.text_model import Glossary

MAX_DOCUMENTS = 100  # stored at a time
LIFETIME_SECONDS = 3600.0  # after which a translated document is deleted, fetched or not
FETCH_GRACE_SECONDS = 6.0  # DeepL's client polls the status every 5 s and then fetches the document
_MAX_CONCURRENT_DOCUMENTS = 2
_FOLDER_PREFIX = "attendo-documents-"
_LOCK_FILE = "lock"  # locked while the process lives
CHUNK_SENTENCES = 8  # per call of the model
_MAX_DETECTION_CHARACTERS = 2_000
_RETRY_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds between attempts while the model is busy
__all__ = ["Document", "DocumentStore"]


@dataclass(eq=False)
class Document:
    """An uploaded document. Access needs its id and its key."""

    document_format: str  # of `find_format`
    served: ServedModel
    glossary: Glossary | None = None
    document_id: str = field(default_factory=lambda: secrets.token_hex(16).upper())
    key: str = field(default_factory=lambda: secrets.token_hex(32).upper())
    status: Literal["queued", "translating", "done", "error"] = "queued"
    characters: int = 0  # translated; 0 until done
    error: str | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    finished_at: float | None = None  # by `time.monotonic`

    @property
    def source_file(self) -> str:
        return f"{self.document_id}.source"

    @property
    def result_file(self) -> str:
        return f"{self.document_id}.result"

    def accepts_key(self, key: str) -> bool:
        """Compare the key in constant time."""
        return hmac.compare_digest(key.encode(errors="surrogatepass"), self.key.encode())


class DocumentStore:
    """Documents of one server: files on disk, state in memory. Both are lost at a restart.

    A server that shuts down therefore finishes its documents and waits `FETCH_GRACE_SECONDS` for them to be fetched.
    """

    def __init__(self, gateway: ModelGateway, lifetime_seconds: float = LIFETIME_SECONDS) -> None:
        self._gateway, self._lifetime = gateway, lifetime_seconds
        self._folder = ScratchFolder(gateway.settings.documents_folder)
        self._documents: dict[str, Document] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT_DOCUMENTS)
        self.characters = 0  # translated since the server started
        gateway.pending_results.append(self._has_pending)

    async def add(
        self, content: bytes, document_format: str, served: ServedModel, glossary: Glossary | None = None
    ) -> Document:
        """Store a document and start its translation. Raise `ApiError` if there are too many or the disk is full."""
        if len(self._documents) >= MAX_DOCUMENTS:
            raise ApiError("too_many_documents", most=MAX_DOCUMENTS)
        document = Document(document_format, served, glossary)
        self._documents[document.document_id] = document
        try:
            await asyncio.to_thread(self._folder.write, document.source_file, content)
        except OSError as error:
            self._remove(document)
            raise disk_error(error) from None
        except asyncio.CancelledError:
            self._remove(document)
            self._schedule_removal(document)  # the thread may still write the file
            raise
        # An empty context: the task may outlive the request that sent the document.
        task = asyncio.create_task(self._translate(document), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return document

    def get(self, document_id: str, key: str) -> Document:
        """Return a document. A wrong key raises the same error as a wrong id."""
        document = self._documents.get(document_id)
        if document is None or not document.accepts_key(key):
            raise ApiError("unknown_document")
        return document

    async def wait(self, document: Document, seconds: float) -> None:
        """Wait until a document is translated, for at most this many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(document.finished.wait(), seconds)

    async def read_result(self, document: Document) -> bytes:
        """Return the translation. Raise `ApiError` if there is none."""
        if document.status == "error":
            raise ApiError("document_failed", detail=document.error)
        if document.status != "done":
            raise ApiError("document_not_ready")
        try:
            return await asyncio.to_thread(self._folder.read, document.result_file)
        except OSError:  # another request has fetched and deleted it
            raise ApiError("unknown_document") from None

    async def discard(self, document: Document) -> None:
        """Delete a document after it was fetched."""
        self._remove(document)

    async def _translate(self, document: Document) -> None:
        try:
            async with self._semaphore:
                document.status = "translating"
                draft = await asyncio.to_thread(self._read, document)
                result = await translate_document(self._gateway, document.served, draft, document.glossary)
                await asyncio.to_thread(self._folder.write, document.result_file, result)
            document.characters = sum(len(segment.text) for segment in draft.segments)
            self.characters += document.characters
            document.status = "done"
        except Exception as error:
            refusal = disk_error(error) if isinstance(error, OSError) else to_api_error(error)
            document.error, document.status = refusal.english, "error"
        finally:
            self._folder.remove(document.source_file)
            self._schedule_removal(document)
            document.finished_at = time.monotonic()
            document.finished.set()

    def _has_pending(self) -> bool:
        """Return True if a document is unfinished, or was finished less than `FETCH_GRACE_SECONDS` ago."""
        since = time.monotonic() - FETCH_GRACE_SECONDS
        return any(each.finished_at is None or each.finished_at > since for each in self._documents.values())

    def _read(self, document: Document) -> Draft:
        return read_document(self._folder.read(document.source_file), document.document_format)

    def _schedule_removal(self, document: Document) -> None:
        asyncio.get_running_loop().call_later(self._lifetime, self._remove, document)

    def _remove(self, document: Document) -> None:
        self._documents.pop(document.document_id, None)
        self._folder.remove(document.source_file)
        self._folder.remove(document.result_file)


def disk_error(error: OSError) -> ApiError:
    """Convert a disk error without revealing a path."""
    return ApiError("no_room", detail=error.strerror or "input/output error")


class ScratchFolder:
    """A private temporary folder in `parent`, by default in that of the system. Only this user can read it."""

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = Path(tempfile.gettempdir()) if parent is None else parent
        self._folder: Path | None = None
        self._creation_lock = threading.Lock()
        _remove_abandoned(self._parent)

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically. After an `OSError`, such as a full disk, no partial file remains."""
        folder = self._ensure_folder()
        new = folder / f"{name}.new"
        try:
            new.write_bytes(content)
            new.replace(folder / name)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes:
        return (self._ensure_folder() / name).read_bytes()

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def _ensure_folder(self) -> Path:
        with self._creation_lock:
            if self._folder is None:
                self._folder, lock = _create_folder(self._parent)
                weakref.finalize(self, _remove_folder, self._folder, lock)
            return self._folder


def check_documents_folder(parent: Path) -> None:
    """Raise `UsageError` if the folder is not writable. Folders created for this test are removed."""
    missing = [each for each in (parent, *parent.parents) if not each.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise UsageError("documents_folder_unusable", path=parent, reason=error.strerror) from None
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def _create_folder(parent: Path) -> tuple[Path, int]:
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{_FOLDER_PREFIX}", dir=parent))
    lock = os.open(folder / _LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Rename after locking: an unlocked folder with the final prefix would be removed as abandoned.
    return folder.rename(folder.with_name(folder.name[1:])), lock


def _remove_abandoned(parent: Path) -> None:
    """Remove folders of killed processes, whose locks are free."""
    for folder in parent.glob(f"{_FOLDER_PREFIX}*"):
        with suppress(OSError):
            facts = folder.lstat()
            if facts.st_uid != os.getuid() or folder.is_symlink():
                continue
            lock = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _remove_folder(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


@asynccontextmanager
async def open_form(request: Request) -> AsyncIterator[FormData]:
    """Open the form of a request. Uploaded files may be on disk until the context exits."""
    try:
        form = await parse_form(request, max_files=1)
    except OSError as error:
        raise disk_error(error) from None
    try:
        yield form
    finally:
        await form.close()


async def read_upload(file: UploadFile, gateway: ModelGateway) -> bytes:
    """Return the content of an uploaded file, or raise `ApiError` if it is too large."""
    most = gateway.settings.documents_bytes
    content = await file.read(most + 1)
    if len(content) > most:
        raise ApiError("document_too_large", most=most)
    return content


async def choose_model(
    gateway: ModelGateway, content: bytes, document_format: str, source: str | None, target: str
) -> ServedModel:
    """Return the model for a document, whose language is detected if `source` is None. Reject a damaged document."""
    words = await asyncio.to_thread(_find_words, content, document_format)
    source = source or detect_source_language(gateway, words, target).language
    if source == target:
        raise ApiError("no_such_pair", source=source, target=target)
    return gateway.get_model_for_pair(source, target)


def _find_words(content: bytes, document_format: str) -> str:
    """Return the first sentences of a document, which tell its language."""
    found, length = list[str](), 0
    for segment in read_document(content, document_format).segments:
        found += SegmentedText(segment.text[:_MAX_DETECTION_CHARACTERS], segment.text_format).sentences
        length += len(segment.text)
        if length >= _MAX_DETECTION_CHARACTERS:
            break
    return " ".join(found)


async def translate_document(
    gateway: ModelGateway, served: ServedModel, draft: Draft, glossary: Glossary | None = None
) -> bytes:
    """Return the translated document."""
    # Parsing a large document takes a while, so it runs outside of the event loop.
    plans = await asyncio.to_thread(_split_segments, draft)
    sentences = [(sentence, has_tags) for plan, has_tags in plans for sentence in plan.sentences]
    answers: list[SentenceHypothesis] = []
    options = {} if glossary is None else {"glossary": glossary}
    for at in range(0, len(sentences), CHUNK_SENTENCES):
        chunk = sentences[at : at + CHUNK_SENTENCES]
        with_links = any(has_tags for _, has_tags in chunk)
        answers += await _translate_chunk(gateway, served, [sentence for sentence, _ in chunk], with_links, **options)
    return await asyncio.to_thread(_assemble, draft, [plan for plan, _ in plans], answers)


def _split_segments(draft: Draft) -> list[tuple[SegmentedText, bool]]:
    """Return the sentences of each segment, and whether it has tags, which need alignments."""
    return [(SegmentedText(each.text, each.text_format), each.text_format != "text") for each in draft.segments]


def _assemble(draft: Draft, plans: Sequence[SegmentedText], answers: Sequence[SentenceHypothesis]) -> bytes:
    remaining = iter(answers)
    return draft.assemble([plan.assemble([*islice(remaining, len(plan.sentences))]) for plan in plans])


async def _translate_chunk(
    gateway: ModelGateway, served: ServedModel, sentences: Sequence[str], with_links: bool, **options: Any
) -> list[SentenceHypothesis]:
    """Translate a chunk. If the model is busy, retry after a pause."""
    for pause in _RETRY_PAUSES:
        try:
            return [each[0] for each in await translate_sentences(gateway, served, sentences, with_links, **options)]
        except ApiError as refusal:
            if refusal.code not in ("busy", "too_late"):
                raise
        await asyncio.sleep(pause)
    return [each[0] for each in await translate_sentences(gateway, served, sentences, with_links, **options)]

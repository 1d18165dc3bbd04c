"""All documents of a server: taken in, translated two at a time, told about, handed out, forgotten."""

import asyncio
import contextvars
import time
from contextlib import suppress

from attendo.serve.documents.chunks import translated
from attendo.serve.documents.document import Document
from attendo.serve.documents.folder import PrivateFolder
from attendo.serve.documents.formats import Draft, Kind, read
from attendo.serve.errors import Refusal, refusal_of
from attendo.serve.office import Office
from attendo.serve.shelf import Served

MOST = 100  # that are kept at a time
LIFETIME_SECONDS = 3600.0  # after which a document that was translated is gone, fetched or not
FETCHED_WITHIN = 6.0  # seconds: DeepL's library asks every five whether a document is done, and then for it
_AT_ONCE = 2


class Documents:
    """Files lie on disk, what is known of them in memory: after a restart neither is there.

    So a server that is told to end waits for those that it has begun, and a moment more for them to be fetched.
    """

    def __init__(self, office: Office, lifetime_seconds: float = LIFETIME_SECONDS) -> None:
        self._office, self._lifetime = office, lifetime_seconds
        self._folder = PrivateFolder(office.settings.documents_folder)
        self._kept: dict[str, Document] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.characters = 0  # translated since the server began
        office.awaited.append(self._awaited)

    async def add(self, content: bytes, kind: Kind, served: Served) -> Document:
        """Refused where there are too many, or the disk is full: then nothing is kept of it."""
        if len(self._kept) >= MOST:
            raise Refusal("too_many_documents", most=MOST)
        document = Document(kind, served)
        self._kept[document.number] = document
        try:
            await asyncio.to_thread(self._folder.write, document.source_file, content)
        except OSError as error:
            self._forget(document)
            raise no_room(error) from None
        except asyncio.CancelledError:
            self._forget(document)
            self._forget_later(document)  # the file may come to be only now
            raise
        # Of no request: whoever sent it may have gone.
        task = asyncio.create_task(self._translate(document), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return document

    def found(self, number: str, key: str) -> Document:
        """A wrong key is told what a wrong id is."""
        document = self._kept.get(number)
        if document is None or not document.opened_by(key):
            raise Refusal("unknown_document")
        return document

    async def ended(self, document: Document, seconds: float) -> None:
        """Waits until it is translated, but not longer than this."""
        with suppress(TimeoutError):
            await asyncio.wait_for(document.ended.wait(), seconds)

    async def content(self, document: Document) -> bytes:
        """Its translation; refused where there is none."""
        if document.status == "error":
            raise Refusal("document_failed", detail=document.error)
        if document.status != "done":
            raise Refusal("document_not_ready")
        try:
            return await asyncio.to_thread(self._folder.read, document.result_file)
        except OSError:  # somebody else was sooner
            raise Refusal("unknown_document") from None

    async def fetched(self, document: Document) -> None:
        """Once it was handed out, nothing is kept of it."""
        self._forget(document)

    async def _translate(self, document: Document) -> None:
        try:
            async with self._room:
                document.status = "translating"
                draft = await self._draft(document)
                result = await translated(self._office, document.served, draft)
                await asyncio.to_thread(self._folder.write, document.result_file, result)
            self.characters += len(draft.text)
            document.characters, document.status = len(draft.text), "done"
        except Exception as error:
            refusal = no_room(error) if isinstance(error, OSError) else refusal_of(error)
            document.error, document.status = refusal.english, "error"
        finally:
            self._folder.remove(document.source_file)
            self._forget_later(document)
            document.ended_at = time.monotonic()
            document.ended.set()

    def _awaited(self) -> bool:
        """One that nobody has come for in all that time is not waited for."""
        since = time.monotonic() - FETCHED_WITHIN
        return any(each.ended_at is None or each.ended_at > since for each in self._kept.values())

    async def _draft(self, document: Document) -> Draft:
        return read(await asyncio.to_thread(self._folder.read, document.source_file), document.kind)

    def _forget_later(self, document: Document) -> None:
        asyncio.get_running_loop().call_later(self._lifetime, self._forget, document)

    def _forget(self, document: Document) -> None:
        self._kept.pop(document.number, None)
        self._folder.remove(document.source_file)
        self._folder.remove(document.result_file)


def no_room(error: OSError) -> Refusal:
    """In words that name no path of this machine."""
    return Refusal("no_room", detail=error.strerror or "input/output error")

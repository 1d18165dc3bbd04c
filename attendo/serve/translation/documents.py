"""Document translation: formats, scratch files and background jobs."""

import asyncio
import contextvars
import fcntl
import hmac
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal

from attendo.errors import UsageError
from attendo.serve.http.errors import Refusal, refusal_of
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served
from attendo.serve.translation.segmenter import TextPlan
from attendo.serve.translation.translator import Answer, answers_of

Kind = Literal["text", "html", "xml"]
KINDS: dict[str, Kind] = {"txt": "text", "html": "html", "htm": "html", "xml": "xml"}
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
# What a document may say of itself; with other codecs of Python bytes can become anything.
_ENCODINGS = frozenset(
    (
        *("utf-8", "us-ascii", "iso-8859-1", "iso-8859-2", "iso-8859-15", "windows-1250", "windows-1251"),
        *("windows-1252", "koi8-r", "gb18030", "gbk", "gb2312", "big5", "shift_jis", "euc-jp", "euc-kr"),
    )
)
_HEAD_BYTES = 1024  # in which a document says how it is encoded
_SAID = {
    "xml": re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]{1,40})["']""", re.ASCII),
    "html": re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE),
}
MOST = 100  # that are kept at a time
LIFETIME_SECONDS = 3600.0  # after which a document that was translated is gone, fetched or not
FETCHED_WITHIN = 6.0  # seconds: DeepL's library asks every five whether a document is done, and then for it
_AT_ONCE = 2
_PREFIX = "attendo-documents-"
_LOCK = "lock"  # held as long as the process lives
CHUNK = 8  # sentences
_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds, each time that there is no room for a chunk
__all__ = ["Document", "Documents"]


@dataclass(frozen=True)
class Draft:
    """What is read of a file, and what is needed to write it again."""

    text: str
    kind: Kind
    mark: bytes  # that the file begins with, where it tells how the rest is encoded
    encoding: str

    def written(self, text: str) -> bytes:
        """Another text, encoded as this one was. What the encoding does not have is written by its number."""
        return self.mark + text.encode(self.encoding, "strict" if self.kind == "text" else "xmlcharrefreplace")


def kind_of(name: str) -> Kind:
    """By the ending of a file's name. Whatever is packed is thus refused before anything unpacks it."""
    ending = PurePath(name).suffix[1:].lower()
    if ending not in KINDS:
        raise Refusal("unknown_format", ending=ending[:20] or "–", known=", ".join(KINDS))
    return KINDS[ending]


def read(content: bytes, kind: Kind) -> Draft:
    mark = next((each for each in _MARKS if content.startswith(each)), b"")
    encoding = _MARKS[mark] if mark else _said(content[:_HEAD_BYTES], kind)
    if encoding not in _ENCODINGS and not mark:
        raise Refusal("unknown_encoding", encoding=encoding)
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        raise Refusal("not_encoded_so", encoding=encoding) from None
    if "\0" in text:  # of no text; of zip, and of other files under a false name
        raise Refusal("not_encoded_so", encoding=encoding)
    return Draft(text, kind, mark, encoding)


def _said(head: bytes, kind: Kind) -> str:
    found = _SAID[kind].search(head) if kind != "text" else None
    return found[1].decode("ascii").lower() if found else "utf-8"


@dataclass(eq=False)
class Document:
    """The id finds it, and nobody without the key learns that it is there."""

    kind: Kind
    served: Served
    number: str = field(default_factory=lambda: secrets.token_hex(16).upper())
    key: str = field(default_factory=lambda: secrets.token_hex(32).upper())
    status: Literal["queued", "translating", "done", "error"] = "queued"
    characters: int = 0  # that were translated
    error: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: float | None = None  # by `time.monotonic`

    @property
    def source_file(self) -> str:
        return f"{self.number}.source"

    @property
    def result_file(self) -> str:
        return f"{self.number}.result"

    def opened_by(self, key: str) -> bool:
        """In a time that does not tell how much of the key is right."""
        return hmac.compare_digest(key.encode(errors="surrogatepass"), self.key.encode())


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


class PrivateFolder:
    """Below `parent`, or where the system keeps temporary files. Only the user that runs this can look inside."""

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = Path(tempfile.gettempdir()) if parent is None else parent
        self._folder: Path | None = None
        self._making = threading.Lock()
        _sweep(self._parent)

    def write(self, name: str, content: bytes) -> None:
        """Whole or not at all: an `OSError`, as of a full disk, leaves nothing behind."""
        folder = self._made()
        new = folder / f"{name}.new"
        try:
            new.write_bytes(content)
            new.replace(folder / name)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes:
        return (self._made() / name).read_bytes()

    def remove(self, name: str) -> None:
        """Also where it is not there."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def _made(self) -> Path:
        with self._making:
            if self._folder is None:
                self._folder, lock = _new(self._parent)
                weakref.finalize(self, _remove, self._folder, lock)
            return self._folder


def check_usable(parent: Path) -> None:
    """Raises `UsageError` where nothing could be kept below it. What is made to find out is gone again."""
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


def _new(parent: Path) -> tuple[Path, int]:
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Only now by a name that is swept: before, nobody could have told that somebody lives here.
    return folder.rename(folder.with_name(folder.name[1:])), lock


def _sweep(parent: Path) -> None:
    """Folders whose process was killed: nobody holds their lock any more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            facts = folder.lstat()
            if facts.st_uid != os.getuid() or folder.is_symlink():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


async def translated(office: Office, served: Served, draft: Draft) -> bytes:
    """The document in the other language, encoded as it was."""
    # Looking for tags in a large document takes a while, in which others are to be answered.
    plan = await asyncio.to_thread(TextPlan, draft.text, draft.kind)
    answers: list[Answer] = []
    for at in range(0, len(plan.asked), CHUNK):
        answers += await _answered(office, served, plan.asked[at : at + CHUNK], draft.kind != "text")
    return draft.written(await asyncio.to_thread(plan.written, answers))


async def _answered(office: Office, served: Served, sentences: Sequence[str], linked: bool) -> list[Answer]:
    """A document can wait: it asks again where others are first."""
    for pause in _PAUSES:
        try:
            return [each[0] for each in await answers_of(office, served, sentences, linked)]
        except Refusal as refusal:
            if refusal.code not in ("busy", "too_late"):
                raise
        await asyncio.sleep(pause)
    return [each[0] for each in await answers_of(office, served, sentences, linked)]

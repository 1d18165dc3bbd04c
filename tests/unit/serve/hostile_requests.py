"""Malformed and hostile bodies, headers and bytes, by name, for any path."""

import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from raw_http import request

LONG = 1_000_000
FIELDS = ("q", "text", "texts", "inputs", "prompt", "messages", "input", "target")
LANGUAGES = {"source": "en", "target": "zh", "source_lang": "EN", "target_lang": "ZH"}
WORDS = "I saw the small cat"

Payload = bytes | Iterable[bytes]


def body(text: Any, **more: Any) -> bytes:
    """A body with a value for the text field of most endpoints."""
    messages = [{"role": "user", "content": text}]
    texts = [text] if isinstance(text, str) else text
    fields = {
        **dict.fromkeys(FIELDS, text),
        "texts": texts,
        "messages": messages,
        **LANGUAGES,
        "model": "forth",
        **more,
    }
    return json.dumps(fields).encode()


def is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "a bracket": b"{",
    "not a number": b'{"q": NaN, "text": NaN}',
    "infinity": b'{"q": "I", "text": "I", "beam": Infinity}',
    "1e400": b'{"q": "I", "text": "I", "temperature": 1e400}',
    "5,000 digits": b'{"q": "I", "text": "I", "beam": %b}' % (b"9" * 5_000),
    "-0": b'{"q": "I", "text": "I", "max_tokens": -0}',
    "half of a pair": b'{"q": "\\ud800", "text": "\\udfff"}',
    "no UTF-8": b'{"q": "\xff\xfe", "text": "\xc0\x80"}',
    "byte order mark": b"\xef\xbb\xbf" + body(WORDS),
    "UTF-16": body(WORDS).decode().encode("utf-16"),
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"q":' * 50_000,
    "deep and closed": b'{"q":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"I"',
    "true": b"true",
    "two values": b"{}{}",
    "twice the same key": b'{"q": "I", "q": ["I"], "text": "I", "text": 5}',
    "a key without end": b'{"%b": 1}' % (b"k" * LONG),
    "many keys": json.dumps({str(number): number for number in range(50_000)}).encode(),
    "prototype": b'{"__proto__": {"q": 1}, "constructor": 1, "__class__": "x"}',
    "a million texts": b'{"q": [%b"x"], "text": []}' % (b'"x",' * 200_000),
    "too large": body("x" * 2 * LONG),
    "empty text": body(""),
    "no text": body(None),
    "a number": body(5),
    "an object": body({"a": 1}),
    "no texts": body([]),
    "texts of nothing": body([None, 5, {}]),
    "lists in lists": body([[["I"]]]),
    "too many texts": body(["I"] * 5_000),
    "too long": body("cat " * 5_000),
    "one word without end": body("x" * 5_000),
    "NUL": body("\0" * 100),
    "control characters": body("".join(map(chr, range(32)))),
    "right to left": body("\u202e\u202d\u2066" * 500),
    "combining": body("a" + "\u0301" * 4_000),
    "separators": body("\u2028\u2029\x85\x0b\x0c\x1c" * 300),
    "beyond Unicode": body("\U0010ffff\ufdd0\ufffe" * 300),
    "emoji": body("👩‍👩‍👧‍👦🏳️‍🌈" * 200),
    "control tokens": body("</s><s><pad><unk>" * 100),
    "format": body("%s%n%x{0}{x.__class__}" * 50),
    "lines": body("\n" * 4_900),
    "open tags": body("<b" * 2_000, format="html", tag_handling="html"),
    "deep tags": body("<b>" * 1_600, format="html", tag_handling="xml"),
    "ampersands": body("&" * 4_900, format="html", tag_handling="html"),
    "entities": body("&#x110000;&#-1;&lol;" * 200, format="html", tag_handling="html"),
    "a bomb of entities": body('<!DOCTYPE a [<!ENTITY b "&c;&c;">]><a>&b;</a>', format="html", tag_handling="xml"),
    "comments": body("<!--" * 1_200, format="html", tag_handling="xml"),
    "many alternatives": body(WORDS, alternatives=10_000, n=10_000, n_best=10_000),
    "a wide beam": body(WORDS, beam=1_000_000_000, num_beams=1_000_000_000, best_of=1_000_000),
    "no end": body(WORDS, max_tokens=10**18, max_length=10**18, max_new_tokens=10**18, max_completion_tokens=10**18),
    "below nothing": body(WORDS, max_tokens=-1, max_length=-5, beam=-1, n=-1, top_k=-7, temperature=-1),
    "two signs": body(WORDS, alternatives="--5", max_tokens="--5", beam="--5"),
    "an alternative too much for a number": b'{"q": "I", "source": "en", "target": "zh", "alternatives": 1e400}',
    "numbers too large below nothing": b'{"inputs": "I", "parameters": {"num_beams": -1e400, "max_length": -1e400}}',
    "fractions": body(WORDS, max_tokens=0.5, beam=2.5, n=1.5, alternatives=0.5),
    "texts for numbers": body(WORDS, max_tokens="all", beam="2", temperature="hot", stream="yes"),
    "true for numbers": body(WORDS, max_tokens=True, beam=True, n=True, stream=1),
    "another model": body(WORDS, model="../../../etc/passwd"),
    "a model without end": body(WORDS, model="m" * 100_000),
    "other languages": body(WORDS, source="xx" * 5_000, target="../zh", source_lang="\0", target_lang=5),
    "an unknown format": body(WORDS, format="exe", tag_handling="exe", response_format={"type": "x"}),
    "stops": body(WORDS, stop=["x"] * 10_000, logit_bias={str(n): 100 for n in range(10_000)}),
    "roles": body(WORDS, messages=[{"role": "\0", "content": [{"type": "image_url", "image_url": 5}]}] * 500),
    "heads": body(WORDS, heads={"decoder.0.cross": {"-1": 1e308}, "x" * 9_000: {}}),
    "prefix": body(WORDS, prefix=["x"] * 10_000, layers=[10**9], checkpoint="../x"),
}  # fmt: skip

FORMS: dict[str, tuple[str, bytes]] = {
    "two signs": ("application/x-www-form-urlencoded", b"q=I&source=en&target=zh&alternatives=--5"),
    "raw Latin-1": ("application/x-www-form-urlencoded", b"q=\xe9&text=\xe9&source=en&target=zh&target_lang=ZH"),
    "escapes of no UTF-8": ("application/x-www-form-urlencoded", b"q=%ff&text=%ff&source=en&target=zh&target_lang=ZH"),
    "bad escapes": ("application/x-www-form-urlencoded", b"q=%zz%&target=%"),
    "many fields": ("application/x-www-form-urlencoded", b"&".join([b"a=b"] * 50_000)),
    "only equals": ("application/x-www-form-urlencoded", b"=" * 100_000),
    "no boundary": ("multipart/form-data", b"--x\r\n\r\n--x--"),
    "an empty boundary": ("multipart/form-data; boundary=", b"----\r\n"),
    "a boundary without end": ("multipart/form-data; boundary=" + "b" * 5_000, b"--b"),
    "no end of parts": ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nI'),
    "no name": ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\nI\r\n--x--\r\n"),
    "many parts": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nI\r\n' * 5_000 + b"--x--\r\n",
    ),
    "a file elsewhere": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="../../../tmp/evil.txt"\r\n\r\nI\r\n--x--\r\n',
    ),
    "headers of a part": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="q"\r\nX: %b\r\n\r\nI\r\n--x--\r\n' % (b"y" * 200_000),
    ),
    "another charset": ("application/json; charset=utf-7", body(WORDS)),
    "no charset": ("application/json; charset=\xff", body(WORDS)),
    "no kind": ("", body(WORDS)),
    "half a kind": ("/", body(WORDS)),
    "XML": ("application/xml", b'<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]><x>&y;</x>'),
}

_ZEROS = b"\0" * 10_000_000
BYTES: dict[str, Callable[[str], Payload]] = {
    "gzip bomb": lambda path: request(path, gzip.compress(_ZEROS), headers=["Content-Encoding: gzip"]),
    "deflate bomb": lambda path: request(path, zlib.compress(_ZEROS), headers=["Content-Encoding: deflate"]),
    "br": lambda path: request(path, b"\x0b\x02\x80", headers=["Content-Encoding: br"]),
    "packed twice": lambda path: request(path, b"x", headers=["Content-Encoding: gzip, gzip"]),
    "both lengths": lambda path: request(path, b"0\r\n\r\nGET / HTTP/1.1\r\n", headers=["Transfer-Encoding: chunked"]),
    "both lengths, hidden": lambda path: request(path, b"0\r\n\r\n", headers=["Transfer-Encoding:\tchunked"]),
    "an unknown coding": lambda path: _head(path, "Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "two codings": lambda path: _head(path, "Transfer-Encoding: chunked", "Transfer-Encoding: identity") + b"0\r\n\r\n",
    "two lengths": lambda path: _head(path, "Content-Length: 1", "Content-Length: 2") + b"xx",
    "a list of lengths": lambda path: _head(path, "Content-Length: 1, 2") + b"xx",
    "a length below nothing": lambda path: _head(path, "Content-Length: -1") + b"x",
    "a length that is none": lambda path: _head(path, "Content-Length: 0x10") + b"x" * 16,
    "a plus before the length": lambda path: _head(path, "Content-Length: +1") + b"x",
    "a length without end": lambda path: _head(path, "Content-Length: " + "9" * 400) + b"x",
    "a huge length": lambda path: _head(path, "Content-Length: 99999999999") + b"x" * 1000,
    "less than its length": lambda path: _head(path, "Content-Length: 100") + b"{}",
    "chunks without end": lambda path: _head(path, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n",
    "chunks for ever": lambda path: _endless_chunks(path),
    "a chunk that is none": lambda path: _head(path, "Transfer-Encoding: chunked") + b"zz\r\nhello\r\n",
    "a chunk below nothing": lambda path: _head(path, "Transfer-Encoding: chunked") + b"-5\r\nhello\r\n",
    "a huge chunk": lambda path: _head(path, "Transfer-Encoding: chunked") + b"fffffffffffffff\r\nhello\r\n",
    "a long extension": lambda path: _head(path, "Transfer-Encoding: chunked") + b"5;" + b"x" * 70_000,
    "expects": lambda path: _head(path, "Content-Length: 99999999", "Expect: 100-continue"),
    "expects something else": lambda path: request(path, b"{}", headers=["Expect: 200-maybe"]),
    "a header of 20 KB": lambda path: request(path, headers=["X: " + "y" * 20_000]),
    "a header of 100 KB": lambda path: request(path, headers=["X: " + "y" * 100_000]),
    "a header for ever": lambda path: (part for part in [_head(path)[:-4], *[b"X: " + b"y" * 60_000] * 50]),
    "many headers": lambda path: request(path, headers=[f"X{number}: y" for number in range(5_000)]),
    "the same header": lambda path: request(path, headers=["Cookie: a=b"] * 1_000),
    "no colon": lambda path: request(path, headers=["Nothing"]),
    "a space before the colon": lambda path: request(path, headers=["X : y"]),
    "NUL in a header": lambda path: request(path, headers=["X: a\0b"]),
    "a folded header": lambda path: request(path, headers=["X: a", " b: c"]),
    "a bare CR": lambda path: request(path, headers=["X: a\rY: b"]),
    "bytes in a header": lambda path: request(path, headers=["Authorization: Bearer \xff\xfe", "X-API-Key: \xe9"]),
    "an id that breaks lines": lambda path: request(path, headers=["X-Request-ID: a\tb\x0bc"]),
    "no host": lambda path: f"POST {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode(),
    "two hosts": lambda path: request(path, headers=["Host: evil.example"]),
    "another host": lambda path: _head(path).replace(b"localhost", b"evil.example"),
    "a host with a name": lambda path: _head(path).replace(b"localhost", b"localhost@evil.example"),
    "a host that is none": lambda path: _head(path).replace(b"localhost", b"[::1"),
    "an empty host": lambda path: _head(path).replace(b"localhost", b""),
    "forwarded": lambda path: request(path, headers=["X-Forwarded-For: " + "1," * 4_000, "X-Forwarded-Host: evil"]),
    "another method": lambda path: request(path, b"{}", method="BREW"),
    "a long method": lambda path: request(path, b"{}", method="A" * 9_000),
    "a small method": lambda path: request(path, b"{}", method="post"),
    "TRACE": lambda path: request(path, method="TRACE"),
    "CONNECT": lambda path: request("evil.example:443", method="CONNECT"),
    "OPTIONS of all": lambda path: request("*", method="OPTIONS"),
    "another server": lambda path: request(f"http://evil.example{path}"),
    "up and out": lambda path: request(path + "/../../../../etc/passwd", method="GET"),
    "up and out, written otherwise": lambda path: request(path + "/%2e%2e/%2e%2e%2fetc%5cpasswd%00", method="GET"),
    "no UTF-8 in the path": lambda path: request(path + "/%ff%fe%c0%80", method="GET"),
    "a long path": lambda path: request(path + "/x" * 6_000, method="GET"),
    "a path for ever": lambda path: request(path + "/x" * 60_000, method="GET"),
    "a long query": lambda path: request(path + "?q=" + "%41" * 4_000, method="GET"),
    "a query without sense": lambda path: request(path + "?q=%ff&target=%00&source=&=&&a[]=1&api_key=%zz"),
    "a fragment": lambda path: request(path + "#x?y"),
    "no path": lambda path: request("", method="GET"),
    "HTTP/0.9": lambda path: f"GET {path}\r\n\r\n".encode(),
    "HTTP/1.0": lambda path: f"POST {path} HTTP/1.0\r\n\r\n".encode(),
    "HTTP/2": lambda path: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 100,
    "HTTP/9.9": lambda path: _head(path).replace(b"HTTP/1.1", b"HTTP/9.9"),
    "TLS": lambda path: bytes.fromhex("16030100c8010000c40303") + b"\x17" * 200,
    "mail": lambda path: b"EHLO evil.example\r\nMAIL FROM:<a@evil.example>\r\n",
    "noise": lambda path: random.Random(7).randbytes(5_000),
    "only lines": lambda path: b"\r\n" * 40_000,
    "only NUL": lambda path: b"\0" * 40_000,
    "nothing at all": lambda path: b"",
    "websocket": lambda path: request(
        path, method="GET", headers=["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"]
    ),
    "h2c": lambda path: request(path, method="GET", headers=["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ"]),
    "ranges": lambda path: request(path, method="GET", headers=["Range: bytes=" + "0-,5-4,-0," * 500]),
    "one behind the other": lambda path: request(path, b"{}").replace(b"Connection: close\r\n", b"") * 20 + _head("/"),
    "a preflight": lambda path: request(
        path, method="OPTIONS", headers=["Origin: null", "Access-Control-Request-Method: " + "X" * 5_000]
    ),
    "a cookie": lambda path: request(path, b"{}", headers=["Cookie: " + "a=b;" * 3_000, "Origin: https://evil.example"]),
}  # fmt: skip


def _head(path: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", "Content-Type: application/json"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1")


def _endless_chunks(path: str) -> Iterable[bytes]:
    yield _head(path, "Transfer-Encoding: chunked")
    for _ in range(400):
        yield b"8000\r\n" + b" " * 0x8000 + b"\r\n"

"""One attempt to bring a file over HTTP: what was written before stays, the rest is appended.

Servers are not trusted: not in their ranges, not in their lengths, not to ever stop.
"""

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import BinaryIO

BLOCK = 2**20  # bytes read at once
LIMIT_BYTES = 16 * 2**30  # of a file whose length only the server tells


class Failure(Exception):
    """Why an attempt did not bring the file; `is_passing` where the same mirror yet may."""

    def __init__(self, reason: str, *, is_passing: bool = False):
        super().__init__(reason)
        self.is_passing = is_passing


def size(file: BinaryIO) -> int:
    """Returns how many bytes are in an open file, all of them flushed."""
    return os.fstat(file.fileno()).st_size


def append(
    file: BinaryIO,
    url: str,
    *,
    length: int | None,
    stall: float,
    report: Callable[[int, int], None],
) -> str:
    """Completes a file that is open for appending, and returns the address that sent the rest.

    Args:
      file: holds the first bytes already, or none.
      url: where the whole is.
      length: bytes of the whole; None to believe the server.
      stall: seconds of silence before the connection is given up.
      report: told the bytes so far and in all.

    Raises:
      Failure: nothing or not all came; what came is kept, unless the server disowned it.
      OSError: the file cannot be written.
    """
    start = size(file)
    with _open(url, start, file, stall) as response:
        start, total = _agree(response, start, length, file)
        file.truncate(start)
        done = start
        report(done, total)
        while done < total:
            block = _read(response, min(BLOCK, total - done), stall)
            if not block:
                raise Failure(f"it ended after {done} of {total} bytes", is_passing=True)
            file.write(block)
            file.flush()
            done += len(block)
            report(done, total)
        return response.url


def _open(url: str, start: int, file: BinaryIO, stall: float) -> http.client.HTTPResponse:
    headers = {"User-Agent": "roid_jax"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return _opener().open(urllib.request.Request(url, headers=headers), timeout=stall)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            file.truncate(0)  # so that the next attempt asks for the whole
        is_passing = error.code in (408, 416, 429) or error.code >= 500
        phrase = http.client.responses.get(error.code, "")
        raise Failure(f"it answered {error.code} {phrase}".strip(), is_passing=is_passing) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failure(_words(error, stall), is_passing=True) from error


def _opener() -> urllib.request.OpenerDirector:
    """Returns an opener of http and https only, since a server may redirect to anything."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _agree(
    response: http.client.HTTPResponse, start: int, length: int | None, file: BinaryIO
) -> tuple[int, int]:
    """Returns the byte that the answer begins at and the length of the whole, or refuses it."""
    if response.headers.get_content_type() == "text/html":
        raise Failure("it sent a web page instead of the file")
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        told = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", told.strip(), flags=re.ASCII)
        if start == 0 or match is None or int(match[1]) != start:
            file.truncate(0)  # ask it for the whole next
            raise Failure("it sent another range than it was asked for", is_passing=True)
        total = None if match[2] == "*" else int(match[2])
    else:
        start, told = 0, response.headers.get("Content-Length", "")
        total = int(told) if re.fullmatch(r"\d{1,18}", told, flags=re.ASCII) else None
    if length is None and total is None:
        raise Failure("it does not tell the file's length")
    if length is None and total > LIMIT_BYTES:
        raise Failure(f"it claims {total} bytes")
    if length is not None and total not in (None, length):
        raise Failure(f"its file has {total} bytes instead of {length}")
    return start, total if length is None else length


def _read(response: http.client.HTTPResponse, count: int, stall: float) -> bytes:
    try:
        return response.read1(count)
    except (OSError, http.client.HTTPException) as error:
        raise Failure(_words(error, stall), is_passing=True) from error


def _words(error: Exception, stall: float) -> str:
    """Returns a network error in the words of the system, without its number."""
    error = getattr(error, "reason", error)
    if isinstance(error, TimeoutError):
        return f"it was silent for {stall:g} s"
    return " ".join(str(getattr(error, "strerror", None) or error or type(error).__name__).split())

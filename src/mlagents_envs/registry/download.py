"""Downloads over HTTP with limits on size and time, and with their SHA-256."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from typing import IO, BinaryIO

from mlagents_envs import __version__
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

_STALL_TIMEOUT_S = 30.0
_TOTAL_TIMEOUT_S = 2 * 60 * 60.0
_REPORT_INTERVAL_S = 5.0
_CHUNK_BYTES = 1 << 18
_MB = 1e6


def is_http(url: str) -> bool:
    """Return whether `url` is an HTTP or HTTPS address, which `download` can fetch."""
    return url.lower().startswith(("http://", "https://"))


def download(url: str, target: BinaryIO, *, max_bytes: int) -> str:
    """Write the contents of `url` to `target`, and return their SHA-256 in hexadecimal.

    Redirects to HTTP and HTTPS are followed, but never from HTTPS to HTTP.

    Raises:
        UnityEnvironmentException: The download fails, is larger than `max_bytes`, ends early or
            takes too long.
    """
    headers = {"User-Agent": f"mlagents-next/{__version__}", "Accept-Encoding": "identity"}
    opener = urllib.request.build_opener(_OnlyToHttp)
    try:
        request = urllib.request.Request(url, headers=headers)
        with opener.open(request, timeout=_STALL_TIMEOUT_S) as response:
            return _copy(response, target, url, max_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        raise UnityEnvironmentException(f"{url} cannot be downloaded: {error}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnityEnvironmentException(f"{url} cannot be downloaded: {error!r}") from error


def _copy(response: http.client.HTTPResponse, target: BinaryIO, url: str, max_bytes: int) -> str:
    total = response.length  # None if the server does not send it
    if total is not None and total > max_bytes:
        raise OSError(f"its size is {total} bytes, more than the limit of {max_bytes}")
    size = "" if total is None else f" of {total / _MB:.0f}"
    digest = hashlib.sha256()
    received = 0
    started_at_s = reported_at_s = time.monotonic()
    while total is None or received < total:
        chunk = response.read1(_CHUNK_BYTES)
        if not chunk:
            break
        received += len(chunk)
        if received > max_bytes:
            raise OSError(f"more bytes were received than the limit of {max_bytes}")
        digest.update(chunk)
        target.write(chunk)
        now_s = time.monotonic()
        if now_s - started_at_s > _TOTAL_TIMEOUT_S:
            raise TimeoutError(f"only {received} bytes were received in {_TOTAL_TIMEOUT_S:.0f} s")
        if now_s - reported_at_s > _REPORT_INTERVAL_S:
            reported_at_s = now_s
            logger.info("Downloaded %.0f%s MB of %s", received / _MB, size, url)
    if total is not None and received < total:
        raise OSError(f"the connection ended after {received} of {total} bytes")
    return digest.hexdigest()


class _OnlyToHttp(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        downgrade = req.type == "https" and not newurl.lower().startswith("https:")
        if downgrade or not is_http(newurl):
            fp.close()
            raise OSError(f"the redirect to {newurl} is not allowed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

"""Downloads over HTTP: bounded in size and time, and hashed on their way."""

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
    """Return whether this is the address of something that `download` can get."""
    return url.lower().startswith(("http://", "https://"))


def download(url: str, target: BinaryIO, *, max_bytes: int) -> str:
    """Write what `url` names to `target`, and return its SHA-256 in hexadecimal.

    Redirects are followed to HTTP and HTTPS, and never from HTTPS to HTTP.

    Raises:
        UnityEnvironmentException: It cannot be had, is larger than `max_bytes`, ended early or
            took too long.
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
    total = response.length  # None where the server does not say
    if total is not None and total > max_bytes:
        raise OSError(f"{total} bytes are more than the {max_bytes} allowed")
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
            raise OSError(f"more than the {max_bytes} bytes allowed came")
        digest.update(chunk)
        target.write(chunk)
        now_s = time.monotonic()
        if now_s - started_at_s > _TOTAL_TIMEOUT_S:
            raise TimeoutError(f"{received} bytes came in {_TOTAL_TIMEOUT_S:.0f} s")
        if now_s - reported_at_s > _REPORT_INTERVAL_S:
            reported_at_s = now_s
            logger.info("%.0f%s MB of %s are here.", received / _MB, size, url)
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
            raise OSError(f"a redirect to {newurl} is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

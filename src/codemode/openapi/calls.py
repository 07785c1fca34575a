"""Send requests of operations with the user's client: redirects, retries, bounds."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ..data.json_shape import weigh
from ..errors import CALL_TIMEOUT, CodeModeToolError
from ..host.threads import LARGE_CHARACTERS, run_check
from .answers import Answer
from .operations import Operation
from .requests import PlainRequest, write_request
from .spec import NoAnswerError, exchange

if TYPE_CHECKING:
    import httpx

_RETRIED = frozenset({429, 503})
_MAX_ATTEMPTS = 4
_ACCEPTED = "application/json, text/*;q=0.8, */*;q=0.5"


class Caller:
    """Sends requests to one origin, to which alone the client's credentials go."""

    def __init__(self, client: httpx.AsyncClient, base_url: str, max_response_bytes: int, max_wait_ms: int) -> None:
        self._client = client
        self._base = base_url.rstrip("/")
        self._max_bytes = max_response_bytes
        self._max_wait_ms = max_wait_ms

    async def call(self, operation: Operation, value: Mapping[str, Any]) -> Any:
        """Return the result of an operation.

        Raises `CodeModeHttpError` for an error of the API, `CodeModeToolError` where there was no answer.
        """
        plain = await run_check(weigh(value, LARGE_CHARACTERS), partial(write_request, operation, value))
        waited_ms = 0
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            response, body = await self._exchange(operation, plain)
            answer = Answer(operation, value, plain, response, body)
            if response.is_success:
                return await run_check(len(body), answer.result)
            retry_ms = _retry_after_ms(response)
            may_repeat = operation.is_idempotent and response.status_code in _RETRIED and attempt < _MAX_ATTEMPTS
            if not may_repeat or retry_ms is None or waited_ms + retry_ms > self._max_wait_ms:
                raise await run_check(len(body), partial(answer.error, retry_ms))
            waited_ms += retry_ms
            await asyncio.sleep(retry_ms / 1000)
        raise AssertionError

    async def _exchange(self, operation: Operation, plain: PlainRequest) -> tuple[httpx.Response, bytes]:
        def request(url: str, status: int | None) -> httpx.Request:
            nonlocal plain
            plain = plain if status is None else _redirected(plain, status)
            return self._request(plain, url)

        try:
            return await exchange(self._client, self._base + plain.target, request, self._max_bytes)
        except NoAnswerError as error:
            what = f"{operation.method} {operation.path}"
            if not error.is_lost:
                raise CodeModeToolError(f"{what} failed: {error}") from None
            if operation.is_read_only:
                raise CodeModeToolError(f"{what} got no answer ({error})") from None
            warning = "it may have happened all the same: look before you repeat it"
            raise CodeModeToolError(f"{what} got no answer ({error}); {warning}", code=CALL_TIMEOUT) from None

    def _request(self, plain: PlainRequest, url: str) -> httpx.Request:
        import httpx

        headers = {"accept-encoding": "gzip", **plain.headers}
        if self._client.headers.get("accept") in (None, "*/*"):
            headers["accept"] = _ACCEPTED
        body: dict[str, Any] = {"files": plain.files} if plain.files else {"content": plain.content}
        request = self._client.build_request(plain.method, url, headers=headers, **body)
        if own := str(self._client.params):  # httpx would put them in place of the others
            request.url = httpx.URL(f"{url}{'&' if '?' in url else '?'}{own}")
        if plain.cookies:
            request.headers["cookie"] = "; ".join(filter(None, (request.headers.get("cookie"), *plain.cookies)))
        return request


def _redirected(plain: PlainRequest, status: int) -> PlainRequest:
    """Return the request that follows a redirect, as browsers make it."""
    if status in (307, 308) or plain.method in ("GET", "HEAD") or (status != 303 and plain.method != "POST"):
        return plain
    headers = {name: value for name, value in plain.headers.items() if name != "content-type"}
    return plain._replace(method="GET", content=None, files=None, headers=headers)


def _retry_after_ms(response: httpx.Response) -> int | None:
    text = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", text):
        return int(float(text) * 1000)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0, min(int(seconds * 1000), 1 << 40))

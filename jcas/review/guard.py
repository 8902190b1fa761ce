"""Who may talk to the review server: people on this machine who hold the token, and no other web page.

A page in the same browser can send requests to 127.0.0.1, so being bound to the loopback address is not enough.
Every request must name the server by its own address (a rebound DNS name does not), carry the token (cookie or
header), and, when it writes, come from the page that this server sent.
"""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-review-token"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SAFE = ("GET", "HEAD")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Guard:
    """Lets a request through to ``app`` or answers it with a refusal; adds the security headers to every answer."""

    app: ASGIApp
    token: str
    host: str  # as bound
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no web sockets here
        headers = Headers(scope=scope)
        fresh = self._token_of_address(scope)
        refusal = self._refusal(scope, headers, fresh)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.update(_HEADERS)
                answer.setdefault("cache-control", "no-store")
                if fresh and refusal is None:
                    answer.append("set-cookie", f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        if refusal is None:
            await self.app(scope, receive, send_guarded)
        else:
            code, reason = refusal
            await PlainTextResponse(reason + "\n", status_code=code)(scope, receive, send_guarded)

    @property
    def cookie(self) -> str:
        """Name of the cookie; browsers share cookies between the ports of a host, so the port is part of it."""
        return f"jcas-review-{self.port}"

    def _refusal(self, scope: Scope, headers: Headers, fresh: bool) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._is_own_address(host):
            return 421, "This server answers only to its own address."
        if not (fresh or self._holds_token(headers)):
            return 403, "Open the address that `jcas review` printed; it holds the key to this page."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and scope["path"] != "/":
            return 403, "Other sites may not read or change this review."
        origin = headers.get("origin")
        if scope["method"] not in _SAFE:
            # Browsers send Origin with every write; a program without one must hold the token itself, not a cookie.
            if origin is None and not self._is_token(headers.get(TOKEN_HEADER, "")):
                return 403, "A change must come from the review page."
            if origin is not None and origin != f"http://{host}":
                return 403, "Other sites may not change this review."
        return None

    def _is_own_address(self, host: str) -> bool:
        name, separator, port = host.rpartition(":")
        if not separator or port.endswith("]"):
            name, port = host, "80"
        if port != str(self.port):
            return False
        if name in LOOPBACK or name.strip("[]") == self.host:
            return True
        # Bound to all addresses by wish: any of them in figures, but no name, since a name can be rebound.
        return self.host in ("0.0.0.0", "::") and _is_address(name.strip("[]"))

    def _token_of_address(self, scope: Scope) -> bool:
        if scope["method"] not in _SAFE or scope["path"] != "/":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return self._is_token(given)

    def _holds_token(self, headers: Headers) -> bool:
        if self._is_token(headers.get(TOKEN_HEADER, "")):
            return True
        return self._is_token(cookie_parser(headers.get("cookie", "")).get(self.cookie, ""))

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

"""The keys of an issuer, from files and URLs that change, break and come back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.authority import TestAuthority
from tests.support.issuer import jwk, key_set
from tests.support.waiting import until

from noosphere.server.addresses import trusted_url
from noosphere.server.security.jwks import JWKS_BYTES_MAX, UnfitKeys
from noosphere.server.security.keyfeed import COOLDOWN_SECONDS, URL_SECONDS, JwksFile, JwksUrl, KeyFeed
from noosphere.testing import ManualClock


class Issuer:
    """An HTTP server whose answer a test says."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.status, self.body, self.location, self.asked = 200, key_set(jwk("EdDSA", "a")), "", 0
        # The credential that it asks for; what was shown last.
        self.wanted, self.shown = "", ""
        self._scheme = "https" if tls else "http"
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                issuer.shown = self.headers.get("Authorization", "")
                self.send_response(401 if issuer.wanted not in ("", issuer.shown) else issuer.status)
                if issuer.location:
                    self.send_header("Location", issuer.location)
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"{self._scheme}://127.0.0.1:{self.server.server_address[1]}/keys"

    def close(self) -> None:
        """Ends it."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    found = Issuer()
    yield found
    found.close()


def kids(feed: KeyFeed) -> list[str]:
    """Returns the names of the keys that are known."""
    return [key.kid for key in feed.keys]


async def test_a_file_is_read_anew_when_it_is_replaced_and_kept_while_it_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    feed = KeyFeed(JwksFile(file), ManualClock())
    with pytest.raises(UnfitKeys, match="cannot be read: No such file"):
        await feed.load()
    file.write_bytes(key_set(jwk("EdDSA", "a")))
    await feed.load()
    first = feed.keys[0].fingerprint
    assert (kids(feed), feed.version, feed.has(first)) == (["a"], 1, True)
    await feed.load()
    assert feed.version == 1, "nothing has changed"
    (tmp_path / "next").write_bytes(key_set(jwk("EdDSA", "b", 1)))
    os.replace(tmp_path / "next", file)
    await feed.load()
    assert (kids(feed), feed.version, feed.has(first)) == (["b"], 2, False)
    file.write_bytes(b"{")
    for _ in range(2):
        # Also when it is looked at again without a change.
        with pytest.raises(UnfitKeys, match="is not JSON"):
            await feed.load()
    file.unlink()
    with pytest.raises(UnfitKeys, match="cannot be read"):
        await feed.load()
    assert (kids(feed), feed.version) == (["b"], 2)
    file.write_bytes(key_set(jwk("EdDSA", "c", 2)))
    await feed.load()
    assert kids(feed) == ["c"]


async def test_a_url_that_fails_leaves_what_is_known(issuer: Issuer) -> None:
    feed = KeyFeed(JwksUrl(issuer.url), ManualClock())
    await feed.load()
    assert kids(feed) == ["a"]
    for status, body, problem in (
        (503, b"", "HTTP 503"),
        (200, b"", "is not JSON"),
        (200, b" " * (JWKS_BYTES_MAX + 10), str(JWKS_BYTES_MAX)),
        (200, key_set(), "has no key"),
    ):
        issuer.status, issuer.body = status, body
        with pytest.raises(UnfitKeys, match=problem):
            await feed.load()
    # Whoever can redirect could issue tokens.
    issuer.status, issuer.location = 302, f"{issuer.url}/elsewhere"
    with pytest.raises(UnfitKeys, match="HTTP 302"):
        await feed.load()
    gone = issuer.url
    issuer.close()
    with pytest.raises(UnfitKeys, match=r"cannot be read: .*refused"):
        await KeyFeed(JwksUrl(gone), ManualClock()).load()
    assert (kids(feed), feed.version) == (["a"], 1)
    issuer.__init__()  # type: ignore[misc]  # the fixture ends this one


async def test_a_url_is_read_every_few_minutes_and_for_unknown_keys_at_most_once_in_a_while(issuer: Issuer) -> None:
    clock = ManualClock()
    feed = KeyFeed(JwksUrl(issuer.url), clock)
    await feed.load()
    running = asyncio.create_task(feed.run())

    async def settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    try:
        issuer.body = key_set(jwk("EdDSA", "b", 1))
        await settle()
        for _ in range(50):
            feed.want()
            await settle()
        assert issuer.asked == 1, "not before the cooldown is over, whatever tokens name"
        clock.advance(int(COOLDOWN_SECONDS * 1000))
        await settle()
        feed.want()
        await until(lambda: kids(feed) == ["b"])
        assert issuer.asked == 2
        issuer.body = key_set(jwk("EdDSA", "c", 2))
        await settle()
        clock.advance(int(COOLDOWN_SECONDS * 1000))
        await settle()
        assert issuer.asked == 2, "nobody has asked for a key"
        clock.advance(int(URL_SECONDS * 1000))
        await until(lambda: kids(feed) == ["c"])
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def test_keys_that_cannot_be_had_at_first_are_asked_for_again(issuer: Issuer, tmp_path: Path) -> None:
    clock = ManualClock()
    feed = KeyFeed(JwksUrl(issuer.url), clock)
    issuer.status = 503
    running = asyncio.create_task(feed.run())
    try:
        for _ in range(3):
            asked = issuer.asked
            clock.advance(int(COOLDOWN_SECONDS * 1000))

            def was_asked(asked: int = asked) -> bool:
                clock.advance(int(COOLDOWN_SECONDS * 1000))
                return issuer.asked > asked

            await until(was_asked)
        issuer.status = 200

        def is_known() -> bool:
            clock.advance(int(COOLDOWN_SECONDS * 1000))
            return kids(feed) == ["a"]

        await until(is_known)
    finally:
        running.cancel()
        await asyncio.wait((running,))


@pytest.mark.parametrize("url", ["https://issuer.example/keys", "http://127.0.0.1:1/k", "http://[::1]/k"])
def test_urls_that_nobody_on_the_way_can_change_are_trusted(url: str) -> None:
    assert trusted_url(url) == url


@pytest.mark.parametrize(
    "url",
    ["http://issuer.example/keys", "ftp://127.0.0.1/k", "https://", "https://u:p@issuer.example", "https://a:0/k"],
)
def test_others_are_not(url: str) -> None:
    with pytest.raises(ValueError, match=r"https|not a URL|password") as refused:
        trusted_url(url)
    assert "u:p" not in str(refused.value)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000])
def test_a_url_that_answers_with_something_else_than_http_is_unfit(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            with pytest.raises(UnfitKeys, match="cannot be read"):
                JwksUrl(f"http://127.0.0.1:{listening.getsockname()[1]}/keys").read()
        finally:
            serving.join()


async def test_a_token_is_presented_as_the_file_has_it_now(tmp_path: Path) -> None:
    """As the API server of Kubernetes asks for one, and replaces it in the pod."""
    authority = TestAuthority(tmp_path)
    files = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    issuer = Issuer(context)
    try:
        token = tmp_path / "token"
        place = JwksUrl(issuer.url, authority.ca, token)
        with pytest.raises(UnfitKeys, match=r"its token in .*token: No such file"):
            place.read()
        for text in ("first", "second\n"):
            issuer.wanted = f"Bearer {text.strip()}"
            token.write_text(text)
            assert place.read() == issuer.body
            assert issuer.shown == issuer.wanted
        issuer.wanted = "Bearer other"
        with pytest.raises(UnfitKeys, match="HTTP 401"):
            place.read()
        asked = issuer.asked
        for broken in ("", "two secrets", "secret\nX-Injected: 1", "s" * 9000):
            token.write_text(broken)
            with pytest.raises(UnfitKeys, match="holds no token") as refused:
                place.read()
            assert "secret" not in str(refused.value)
        assert issuer.asked == asked
    finally:
        issuer.close()

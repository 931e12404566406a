"""One connection to one Redis process: the calls of everybody share its round trips, in the order in which they come.

It never connects a second time. Whatever answers at the same address later may be another process, with another
past; whoever wants to go on has to look first (:mod:`.fence`).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import hiredis

CALLS_MAX = 4_096
"""Most calls that wait for a reply; others wait for room."""

CONNECT_SECONDS_MAX = 2.0
REPLY_SECONDS_MAX = 5.0
"""A Redis that leaves the oldest call without a reply for so long is taken for lost."""

Reply = Any
"""What hiredis makes of a reply: bytes, int, None, or a list of such."""


_UNASKED = (b"smessage", b"sunsubscribe")

_FORM = "redis://[user:password@]host[:port][/database]"
_DATABASE = re.compile(r"/?|/(\d{1,9})", re.ASCII)


class WireLost(Exception):
    """The connection is gone. ``sent`` tells whether the call may have been executed."""

    def __init__(self, problem: str, sent: bool) -> None:
        super().__init__(problem)
        self.sent = sent


class CommandError(Exception):
    """Redis has refused a command; ``kind`` is the first word of the message."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.kind = message.split(" ", 1)[0]


class Trust(NamedTuple):
    """Whom a connection under TLS trusts, and what it shows; read anew by each.

    Attributes:
        ca: the authorities that may vouch for Redis; None for those of this machine.
        certificate: our own, for a Redis that asks for one.
        key: its key.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Reads the files.

        Raises:
            OSError: one cannot be used.
        """
        for file in self:
            if file is not None:
                # Errors of the library below do not name the file.
                file.open("rb").close()
        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            # A key with a password fails instead of asking whoever is at the terminal.
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        return context


TRUST = Trust()


class Address(NamedTuple):
    """Where a Redis is, and who we are there. Its text never shows the password."""

    host: str
    port: int
    database: int = 0
    user: str = ""
    password: str = ""
    tls: Trust | None = None

    @classmethod
    def parse(cls, url: str, trust: Trust = TRUST) -> Address:
        """Reads ``redis://[user:password@]host[:port][/database]``, or ``rediss://`` for TLS.

        Args:
            url: the address.
            trust: what is read for TLS.

        Raises:
            ValueError: it is not of this form. The text repeats nothing of the url, which may be a password.
        """
        try:
            parts = urlsplit(url)
            # Reading the port checks it. A password with a slash ends in what would be the port.
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        database = _DATABASE.fullmatch(parts.path) if host else None
        if not host or database is None or port == 0 or parts.scheme not in ("redis", "rediss"):
            raise ValueError(f"is not of the form {_FORM}")
        if not url.isprintable() or " " in url or "?" in url or "#" in url:
            raise ValueError(f"has more in it than {_FORM}; blanks, ? and # in a password are written with %")
        return cls(
            host,
            port or 6379,
            int(database[1] or 0),
            unquote(parts.username or ""),
            unquote(parts.password or ""),
            trust if parts.scheme == "rediss" else None,
        )

    def __str__(self) -> str:
        """Returns host and port."""
        return f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        """Returns host and port."""
        return f"Address({self})"


class Wire(asyncio.Protocol):
    """See the module. Made by :meth:`connect`.

    Attributes:
        batch_count: how many times it has written; calls of one turn of the event loop are one batch.
        heard_at: when the last reply came, in the event loop's time.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = hiredis.Reader(replyError=_reply_error, protocolError=ConnectionError)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._waiting: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._problem: str | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._watch: asyncio.TimerHandle | None = None
        self._on_message: Callable[[bytes, bytes, bytes | None], None] | None = None
        self.batch_count = 0
        self.heard_at = self._loop.time()

    @classmethod
    async def connect(cls, address: Address) -> Wire:
        """Connects and says who we are; which database is meant is said by whoever looks at who answers.

        Raises:
            WireLost: nobody answers.
            CommandError: Redis does not let us in.
        """
        loop = asyncio.get_running_loop()
        try:
            context = None if address.tls is None else address.tls.context()
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, wire = await loop.create_connection(cls, address.host, address.port, ssl=context)
        except (OSError, TimeoutError) as error:
            raise WireLost(f"cannot connect to {address}: {_problem(error)}", sent=False) from None
        try:
            if address.password:
                await wire.call("AUTH", *([address.user] if address.user else []), address.password)
        except BaseException:
            wire.abort("not let in")
            raise
        return wire

    @property
    def lost(self) -> bool:
        """Whether it is gone."""
        return self._problem is not None

    async def call(self, *command: str | bytes | int) -> Reply:
        """Sends a command and returns its reply. A cancelled caller does not take its command back.

        Raises:
            CommandError: what Redis has answered.
            WireLost: there is no answer.
            UnicodeEncodeError: a text is not Unicode; nothing was sent.
        """
        packed = hiredis.pack_command(command)  # type: ignore[arg-type] # Its stub allows one part only.
        # Waits only for room, so calls keep the order in which they were made.
        await self._room.acquire()
        if self._problem is not None:
            self._room.release()
            raise WireLost(self._problem, sent=False)
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._send(packed)
        self._waiting.append((reply, self._loop.time()))
        if self._watch is None:
            self._watch = self._loop.call_later(REPLY_SECONDS_MAX, self._look)
        return await reply

    def listen(self, on_message: Callable[[bytes, bytes, bytes | None], None]) -> None:
        """Has what no call has asked for told to ``on_message``: kind, channel and text. For sharded subscriptions.

        After the first SSUBSCRIBE nothing but further ones and PING can be called, and SUNSUBSCRIBE told, which is
        answered in the same way as what Redis sends when a channel's slot goes to another node.
        """
        self._on_message = on_message

    def tell(self, *command: str | bytes | int) -> None:
        """Sends a command whose reply, if there is one, is no reply to a call. Does nothing if nobody is there."""
        if self._problem is None:
            self._send(hiredis.pack_command(command))  # type: ignore[arg-type] # As above.

    async def ended(self) -> None:
        """Returns when it is gone."""
        await asyncio.shield(self._ended)

    def abort(self, problem: str) -> None:
        """Ends it at once; whoever waits is told ``problem``."""
        self._lose(problem)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Ends it; returns when the socket is closed."""
        self.abort("closed")
        await asyncio.shield(self._closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if not self._closed.done():
            self._closed.set_result(None)
        self._lose(f"the connection has ended{f': {exc}' if exc is not None else ''}")

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self.heard_at = self._loop.time()
        try:
            self._parser.feed(data)
            # False is no reply that Redis gives: it says that there is none yet.
            while (reply := self._parser.gets()) is not False:
                self._deliver(reply)
        except ConnectionError as error:
            self.abort(f"not understood: {error}")

    def _deliver(self, reply: Reply) -> None:
        if self._on_message is not None and isinstance(reply, list) and reply[0] in _UNASKED:
            kind, channel, text = reply
            self._on_message(kind, channel, text if isinstance(text, bytes) else None)
            return
        if not self._waiting:
            self.abort("a reply to no call")
            return
        waiter, _ = self._waiting.popleft()
        self._room.release()
        if waiter.done():
            return
        if isinstance(reply, CommandError):
            waiter.set_exception(reply)
        else:
            waiter.set_result(reply)

    def _send(self, packed: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._problem is None and self._transport is not None:
            self.batch_count += 1
            self._transport.write(b"".join(unsent))

    def _look(self) -> None:
        """Looks whether the oldest call waits for too long, as often as that may be."""
        self._watch = None
        if not self._waiting:
            return
        left = self._waiting[0][1] + REPLY_SECONDS_MAX - self._loop.time()
        if left <= 0:
            self.abort(f"no reply within {REPLY_SECONDS_MAX:g} s")
        else:
            self._watch = self._loop.call_later(left, self._look)

    def _lose(self, problem: str) -> None:
        if self._problem is not None:
            return
        self._problem = problem
        if self._watch is not None:
            self._watch.cancel()
        unsent = len(self._unsent)
        while self._waiting:
            sent = len(self._waiting) > unsent
            waiter, _ = self._waiting.popleft()
            self._room.release()
            if not waiter.done():
                waiter.set_exception(WireLost(problem, sent))
                # Seen, as far as asyncio is concerned: its caller may be cancelled in this very turn.
                waiter.exception()
        self._unsent.clear()
        if not self._ended.done():
            self._ended.set_result(None)


def _problem(error: OSError) -> str:
    """Returns what is wrong with a connection, without where in our own code that was noticed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS has failed: {error.reason or error}"
    if error.filename is not None:
        return f"{error.filename} cannot be read: {error.strerror}"
    return str(error) or "no answer"


def _reply_error(message: str) -> CommandError:
    return CommandError(message)

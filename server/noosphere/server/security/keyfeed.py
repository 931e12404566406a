"""Keeps the keys of an issuer up to date, from a file or a URL, whatever becomes of them."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

import structlog

from ..ports.runtime import Clock
from .jwks import JWKS_BYTES_MAX, UnfitKeys, VerifyingKey, read_keys

FILE_SECONDS = 1.0
"""How often it is looked whether a file has been replaced."""
URL_SECONDS = 300.0
"""How often a URL is read."""
COOLDOWN_SECONDS = 10.0
"""How often a URL is read at most: also when tokens name keys that are not known, and after a failure."""
FETCH_SECONDS_MAX = 5.0
TOKEN_BYTES_MAX = 8 * 1024
"""Bytes of a token that is presented for the keys."""
_TOKEN = re.compile(rb"[!-~]+")

log = structlog.get_logger(__name__)


class Place(Protocol):
    """Where a key set is.

    Attributes:
        name: for messages.
        seconds: how often to look.
        cooldown_seconds: how often to look at most.
    """

    name: str
    seconds: float
    cooldown_seconds: float

    def read(self) -> bytes | None:
        """Returns what is there, None if nothing has changed; may block.

        Raises:
            UnfitKeys: it cannot be read.
        """
        ...


class JwksFile:
    """A key set in a file."""

    seconds = FILE_SECONDS
    cooldown_seconds = FILE_SECONDS

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._seen: tuple[int, ...] = ()

    def read(self) -> bytes | None:
        """Returns what is in the file, None if it is the one that was read last."""
        try:
            found = self._path.stat()
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if seen == self._seen:
                return None
            with self._path.open("rb") as stream:
                data = stream.read(JWKS_BYTES_MAX + 1)
        except OSError as error:
            self._seen = ()
            raise UnfitKeys(f"cannot be read: {error.strerror}") from None
        self._seen = seen
        return data


class JwksUrl:
    """A key set behind a URL.

    Args:
        url: of https, or of this machine.
        ca: PEM file of the authorities that may vouch for its server; None for the machine's.
        token_file: file of a token to present, for a URL of https; None presents none.

    Raises:
        UnfitKeys: the file cannot be used.
    """

    seconds = URL_SECONDS
    cooldown_seconds = COOLDOWN_SECONDS

    def __init__(self, url: str, ca: Path | None = None, token_file: Path | None = None) -> None:
        self.name = url
        self._token_file = token_file
        handlers: list[Any] = [_NoRedirect()]
        if url.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=None if ca is None else str(ca))
            except (OSError, ssl.SSLError) as error:
                raise UnfitKeys(f"cannot be read: {ca} holds no certificates: {error.strerror}") from None
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def read(self) -> bytes | None:
        """Returns what the URL has."""
        headers = {"Accept": "application/json"} | self._credential()
        request = urllib.request.Request(self.name, headers=headers)
        try:
            with self._opener.open(request, timeout=FETCH_SECONDS_MAX) as response:
                found: bytes = response.read(JWKS_BYTES_MAX + 1)
                return found
        except urllib.error.HTTPError as error:
            raise UnfitKeys(f"cannot be read: HTTP {error.code}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UnfitKeys(f"cannot be read: {reason}") from None
        except http.client.HTTPException as error:
            # What it said is not repeated: it may be anything.
            raise UnfitKeys(f"cannot be read: not HTTP ({type(error).__name__})") from None

    def _credential(self) -> dict[str, str]:
        """Returns the header that presents the token, as the file has it now: Kubernetes replaces it."""
        if self._token_file is None:
            return {}
        try:
            with self._token_file.open("rb") as stream:
                token = stream.read(TOKEN_BYTES_MAX + 1).strip()
        except OSError as error:
            raise UnfitKeys(f"cannot be read: its token in {self._token_file}: {error.strerror}") from None
        # What is no token is not repeated either, neither here nor by the library that would refuse it.
        if len(token) > TOKEN_BYTES_MAX or not _TOKEN.fullmatch(token):
            raise UnfitKeys(f"cannot be read: {self._token_file} holds no token")
        return {"Authorization": f"Bearer {token.decode()}"}


class KeyFeed:
    """See the module. Lives on one event loop.

    Args:
        place: where the keys are.
        clock: the source of time.

    Attributes:
        keys: those that are known; what was known goes on while the place cannot be read, or has nothing to be used.
        version: counts the sets that there have been; 0 before the first.
    """

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._fingerprints: frozenset[bytes] = frozenset()
        self._wanted: asyncio.Future[None] | None = None
        self._told = ""
        # What is wrong with what was read last; it is not read again before it changes.
        self._unfit = ""
        self.keys: tuple[VerifyingKey, ...] = ()
        self.version = 0

    def has(self, fingerprint: bytes) -> bool:
        """Tells whether a key is among those that are known."""
        return fingerprint in self._fingerprints

    def want(self) -> None:
        """Has the place looked at soon: a token names a key that is not known. Never waits."""
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def load(self) -> None:
        """Looks at the place once.

        Raises:
            UnfitKeys: it cannot be read, or has nothing to be used.
        """
        async with asyncio.timeout(FETCH_SECONDS_MAX * 2):
            data = await asyncio.to_thread(self._place.read)
        if data is None:
            if self._unfit:
                raise UnfitKeys(self._unfit)
            return
        try:
            keys = read_keys(data)
        except UnfitKeys as error:
            self._unfit = str(error)
            raise
        self._unfit = ""
        fingerprints = frozenset(key.fingerprint for key in keys)
        if fingerprints != self._fingerprints:
            self.keys, self._fingerprints = keys, fingerprints
            self.version += 1
            log.info("keys of the issuer of tokens", place=self._place.name, count=len(keys))

    async def run(self) -> None:
        """Looks at the place again and again, until it is cancelled."""
        failed = not self.keys
        while True:
            await self._clock.sleep(self._place.cooldown_seconds)
            if not failed:
                self._wanted = asyncio.get_running_loop().create_future()
                rest = self._place.seconds - self._place.cooldown_seconds
                if rest > 0:
                    await self._clock.wait(self._wanted, rest)
            failed = not await self._loaded()

    async def _loaded(self) -> bool:
        why = ""
        try:
            await self.load()
        except (UnfitKeys, TimeoutError) as error:
            why = str(error) or "does not answer"
        if why and why != self._told:
            log.warning("the keys of the issuer of tokens cannot be renewed", place=self._place.name, problem=why)
        elif self._told and not why:
            log.warning("the keys of the issuer of tokens can be read again", place=self._place.name)
        self._told = why
        return not why


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from where the operator said."""

    def redirect_request(self, *_: Any) -> None:
        """Follows nobody."""
        return

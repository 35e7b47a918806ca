"""The way to a Prometheus-compatible store: authentication, TLS, retries, limits, and errors with a remedy.

Nothing here knows metrics or tasks; secrets never reach a message.
"""

from __future__ import annotations

import email.utils
import ipaddress
import random
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx
import orjson

from trainminder.errors import SettingsError, StoreError
from trainminder.settings import StoreSettings
from trainminder.source.prometheus.matrix import MatrixAnswer, parse_matrix, read_error

__all__ = ["TIMED_OUT", "TOO_LARGE", "RefusedError", "Spent", "StoreClient"]

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
#: Statuses that are given to what this side found.
TIMED_OUT, TOO_LARGE = 408, 413
RETRIED = frozenset({429, 500, 502, 503, 504})


class RefusedError(StoreError):
    """The store answered, and said no; ``status`` is its HTTP status, ``text`` its own words."""

    def __init__(self, message: str, status: int, text: str) -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class _Passing(Exception):
    """A failure that may pass: worth another try after ``pause`` seconds (None: no wish of the store)."""

    def __init__(self, error: StoreError, pause: float | None = None, most_tries: int = 1000) -> None:
        self.error = error
        self.pause = pause
        self.most_tries = most_tries


@dataclass(frozen=True, slots=True)
class Spent:
    """What a store was asked so far: ``requests``, ``seconds`` until their answers had come, their ``size`` in bytes.

    Requests overlap, so that they may add up to more than what was waited.
    """

    requests: int = 0
    seconds: float = 0.0
    size: int = 0


class StoreClient:
    """Asks one store; may be used from several threads at once.

    Args:
        settings: address, credentials, limits.
        sleep: called with the seconds of each pause before another try.
        rng: draws the jitter of those pauses.
        now: Unix seconds, for Retry-After dates.
    Raises:
        SettingsError: the address, a certificate file or a header cannot be used.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._now = now
        self._method = "POST"
        self._turns = threading.BoundedSemaphore(settings.concurrency)
        self._noting = threading.Lock()
        self.spent = Spent()
        """What the store was asked so far."""
        url = _checked_url(settings.url)
        self._auth = _basic_auth(settings, url)
        self.address = str(url.copy_with(username=None, password=None, query=None, fragment=None)).rstrip("/")
        """Where the store is, without secrets."""
        is_local = _is_loopback(url.host)
        headers = {"Accept": "application/json", "User-Agent": "trainminder"}
        # On the same host packing the answer costs more than sending it.
        headers["Accept-Encoding"] = "identity" if is_local else "gzip"
        headers |= {name: value.get_secret_value() for name, value in settings.headers.items()}
        for name, value in headers.items():
            _check_header(f"store.headers.{name}", value)
        self._client = httpx.Client(
            headers=headers,
            verify=_tls(settings),
            timeout=httpx.Timeout(settings.timeout_seconds),
            limits=httpx.Limits(max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency),
            follow_redirects=False,
            # A proxy from the environment is for the world outside, never for this host.
            trust_env=not is_local,
        )

    def __enter__(self) -> StoreClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def query(self, expression: str, at: float) -> MatrixAnswer:
        """An instant query: a vector comes back as series of one sample, a range selector with raw samples."""
        return self._parsed(self.request("query", {"query": expression, "time": _instant(at)}))

    def query_range(self, expression: str, start: float, end: float, step: float) -> MatrixAnswer:
        """A range query; ``start`` and ``end`` are both included, ``step`` in seconds."""
        form = {"query": expression, "start": _instant(start), "end": _instant(end), "step": f"{step:.12g}"}
        return self._parsed(self.request("query_range", form))

    def label_values(self, label: str, matcher: str | None, start: float, end: float) -> list[str]:
        """The values of a label among the series that a selector finds between two instants, sorted."""
        form = {"start": _instant(start), "end": _instant(end)} | ({"match[]": matcher} if matcher else {})
        data = self.get_json(f"label/{urllib.parse.quote(label, safe='')}/values", form)
        return sorted(str(value) for value in data) if isinstance(data, list) else []

    def get_json(self, path: str, form: Mapping[str, str]) -> Any:
        """The ``data`` of any other API call, asked with GET."""
        body = self.request(path, form, method="GET")
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise StoreError(f"{self.address}: the answer is not JSON ({error}): is this a Prometheus API?") from error
        return answer.get("data") if isinstance(answer, dict) else None

    def _parsed(self, body: bytes) -> MatrixAnswer:
        try:
            return parse_matrix(body)
        except StoreError as error:
            raise StoreError(f"{self.address}: {error}") from error

    def request(self, path: str, form: Mapping[str, str], *, method: str | None = None) -> bytes:
        """The body of an API call that succeeded.

        Args:
            path: below ``/api/v1/``.
            form: sent as a form by POST, or in the address by GET.
        Raises:
            RefusedError: the store answered with an error.
            StoreError: it could not be reached, was too slow, or answered something else than an API would.
        """
        tries = 0
        while True:
            try:
                with self._turns:
                    return self._once(path, form, method or self._method)
            except _Passing as failure:
                tries += 1
                if tries > min(self._settings.retries, failure.most_tries):
                    raise failure.error from failure
                self._sleep(self._pause(tries, failure.pause))

    def _pause(self, tries: int, wished: float | None) -> float:
        if wished is not None:
            return min(max(wished, 0.0), LONGEST_PAUSE_SECONDS)
        # Half of the pause is drawn, so that many clients do not come back at once.
        return min(FIRST_PAUSE_SECONDS * 2.0 ** (tries - 1), LONGEST_PAUSE_SECONDS) * self._rng.uniform(0.5, 1.0)

    def _once(self, path: str, form: Mapping[str, str], method: str) -> bytes:
        url, began = f"{self.address}/api/v1/{path}", time.monotonic()
        sent: dict[str, Any] = {"data": dict(form)} if method == "POST" else {"params": dict(form)}
        auth = self._auth if self._auth else httpx.USE_CLIENT_DEFAULT
        try:
            with self._client.stream(method, url, headers=self._bearer(), auth=auth, **sent) as response:
                body = self._read(response)
            self._note(time.monotonic() - began, len(body))
        except httpx.TimeoutException as error:
            raise _Passing(self._too_slow(), most_tries=1) from error
        except httpx.DecodingError as error:
            raise StoreError(f"{self.address} sent a damaged compressed answer: {_one_line(error)}") from error
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.status_code == 405 and method == "POST":
            # Some gateways let only GET through; remembered, so that it is asked once.
            self._method = "GET"
            return self._once(path, form, "GET")
        return self._judged(response, body)

    def _note(self, seconds: float, size: int) -> None:
        with self._noting:
            self.spent = Spent(self.spent.requests + 1, self.spent.seconds + seconds, self.spent.size + size)

    def _read(self, response: httpx.Response) -> bytes:
        most = self._settings.max_answer_mib * 2**20
        deadline = time.monotonic() + self._settings.timeout_seconds
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > most:
                raise RefusedError(
                    f"{self.address} sent more than store.max_answer_mib ({self._settings.max_answer_mib} MiB): "
                    f"ask for a shorter range, or raise it",
                    TOO_LARGE,
                    "answer too large",
                )
            # httpx bounds the wait for each piece; a store that drips would hold a pass for ever.
            if time.monotonic() > deadline:
                raise _Passing(self._too_slow(), most_tries=1)
        return bytes(body)

    def _judged(self, response: httpx.Response, body: bytes) -> bytes:
        status = response.status_code
        kind = response.headers.get("content-type", "none").split(";")[0].strip()
        if response.is_redirect:
            target = response.headers.get("location", "")
            raise StoreError(
                f"{self.address} answered with status {status}, a redirect to {_without_secrets(target)}: "
                f"sign-in page? check the token, or set store.url to the final address"
            )
        if kind in ("text/html", "application/xhtml+xml") or body[:100].lstrip()[:1] == b"<":
            error = StoreError(
                f"{self.address} answered with status {status} and a page ({kind}) where JSON was expected: "
                f"sign-in page? check the token and the path of store.url"
            )
            if status in RETRIED:
                raise _Passing(error, _retry_after(response, self._now()))
            raise error
        if status == 200:
            return body
        text = read_error(body) or _one_line(body[:200].decode("utf-8", "replace")) or "no reason given"
        refused = RefusedError(f"{self.address} answered with status {status}: {text}{_remedy(status)}", status, text)
        # A query that ran out of the store's own time will do so again; a smaller one may not.
        if status in RETRIED and not text.startswith("timeout:"):
            raise _Passing(refused, _retry_after(response, self._now()))
        raise refused

    def _bearer(self) -> dict[str, str]:
        secret, path = self._settings.bearer_token, self._settings.bearer_token_file
        if path is not None:
            try:
                token = path.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise SettingsError(f"store.bearer_token_file is {path}: {reason}: give a readable file") from error
            _check_header("store.bearer_token_file", token)
        elif secret is not None:
            token = secret.get_secret_value().strip()
            _check_header("store.bearer_token", token)
        else:
            return {}
        return {"Authorization": f"Bearer {token}"}

    def _too_slow(self) -> StoreError:
        return RefusedError(
            f"{self.address} did not answer within {self._settings.timeout_seconds:g} s: "
            f"raise store.timeout_seconds, or ask for a shorter range",
            TIMED_OUT,
            "timed out",
        )

    def _unreachable(self, error: httpx.TransportError) -> Exception:
        text = _one_line(error)
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                return StoreError(
                    f"{self.address}: the TLS handshake failed ({text}): set store.ca_file to the authority that "
                    f"signed its certificate, or store.client_certificate_file if it asks for one"
                )
            cause = cause.__cause__ or cause.__context__
        if any(sign in text for sign in ("Name or service", "getaddrinfo", "nodename", "name resolution")):
            return StoreError(f"{self.address}: the host name is not known ({text}): check store.url and the DNS")
        if "refused" in text:
            remedy = "check that the store runs there and that store.url has the right port"
            return _Passing(StoreError(f"{self.address} refused the connection: {remedy}"))
        if isinstance(error, httpx.UnsupportedProtocol | httpx.ProxyError | httpx.LocalProtocolError):
            return StoreError(f"{self.address} cannot be asked ({text}): check store.url and the proxy variables")
        return _Passing(StoreError(f"{self.address}: the connection broke ({text}): check the store and the network"))


def _instant(at: float) -> str:
    # Milliseconds are what stores keep; epoch seconds carry no zone to be mistaken.
    return f"{at:.3f}".rstrip("0").rstrip(".")


def _checked_url(url: str | None) -> httpx.URL:
    if not url:
        raise SettingsError("store.url is not set: give the store's address, such as http://prometheus:9090")
    try:
        parsed = httpx.URL(url.strip())
    except (httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"store.url is not an address ({_one_line(error)}): write http://host:port") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        shown = _without_secrets(url)
        raise SettingsError(
            f'store.url is "{shown}": write it with http:// or https://, such as http://prometheus:9090'
        )
    return parsed


def _basic_auth(settings: StoreSettings, url: httpx.URL) -> httpx.BasicAuth | None:
    if settings.username is not None:
        password = settings.password.get_secret_value() if settings.password else ""
        return httpx.BasicAuth(settings.username, password)
    return httpx.BasicAuth(url.username, url.password) if url.username else None


def _tls(settings: StoreSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"store.ca_file is {settings.ca_file}: {_one_line(error)}: give a PEM file") from error
    if not settings.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = settings.client_certificate_file, settings.client_key_file
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"store.client_certificate_file is {certificate} and store.client_key_file {key}: "
                f"{_one_line(error)}: give PEM files of one certificate and its key"
            ) from error
    return context


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_header(key: str, value: str) -> None:
    if not value.isascii() or not value.isprintable():
        # The value is a secret: only its place is named.
        raise SettingsError(f"{key} holds a character that no HTTP header may carry: check it for line breaks")


def _retry_after(response: httpx.Response, now: float) -> float | None:
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError):
        return None


def _remedy(status: int) -> str:
    if status == 401:
        return ": check store.bearer_token, store.username and store.password"
    if status == 403:
        return ": these credentials may not read here; check them and store.headers (tenant)"
    if status == 404:
        return ": there is no Prometheus API below that address; check the path of store.url"
    return ""


def _without_secrets(url: str) -> str:
    """Scheme, host and path of an address; what may hold a secret is left out."""
    head = url.split("?")[0].split("#")[0]
    scheme, separator, rest = head.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"[:200]


def _one_line(text: object) -> str:
    return " ".join(str(text).split())

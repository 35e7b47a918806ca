"""The way to the store: what is sent, what is tried again, and what each failure tells its reader to do."""

from __future__ import annotations

import email.utils
import gzip
import http.server
import random
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainminder.errors import SettingsError, StoreError
from trainminder.settings import StoreSettings
from trainminder.source.prometheus.http import RefusedError, StoreClient

NOW = 1_760_000_000.0


class Pauses:
    """Records pauses instead of making them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def client_of(pauses: Pauses) -> Iterator[Callable[..., StoreClient]]:
    made: list[StoreClient] = []

    def make(url: str, **settings: Any) -> StoreClient:
        client = StoreClient(StoreSettings(url=url, **settings), sleep=pauses, rng=random.Random(1), now=lambda: NOW)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


def ask(client: StoreClient) -> Any:
    return client.query_range("up", NOW, NOW + 60, 0.5)


def refused(client: StoreClient) -> str:
    with pytest.raises(StoreError) as caught:
        ask(client)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_range_is_asked_by_form_with_epoch_instants(
    stand_in: Any, reply: Any, matrix: Any, client_of: Any, pauses: Pauses
) -> None:
    stand_in.play(reply(body=matrix({"instance": "a"}, [(NOW, 1.0)])))
    client = client_of(f"{stand_in.url}/prefix/")
    assert ask(client).values.tolist() == [1.0]
    client.query("up", NOW + 0.25)
    first, second = stand_in.asked
    assert (first.method, first.path) == ("POST", "/prefix/api/v1/query_range")
    assert first.form == {"query": "up", "start": "1760000000", "end": "1760000060", "step": "0.5"}
    assert second.form == {"query": "up", "time": "1760000000.25"}
    assert pauses.seconds == []


def test_only_a_refused_method_falls_back_to_get_and_is_remembered(
    stand_in: Any, reply: Any, matrix: Any, client_of: Any
) -> None:
    good = reply(body=matrix())
    stand_in.script = lambda asked: reply(405) if asked.method == "POST" else good
    client = client_of(stand_in.url)
    ask(client)
    ask(client)
    assert [asked.method for asked in stand_in.asked] == ["POST", "GET", "GET"]
    assert stand_in.asked[1].form["query"] == "up"


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"username": "ann", "password": "s3cret"}, "Basic YW5uOnMzY3JldA=="),
        ({"bearer_token": "t0ken"}, "Bearer t0ken"),
    ],
)
def test_credentials_are_sent_and_never_shown(
    stand_in: Any, reply: Any, client_of: Any, settings: dict[str, str], sent: str
) -> None:
    stand_in.play(reply(401, {"status": "error", "error": "no"}))
    text = refused(client_of(stand_in.url, headers={"X-Scope-OrgID": "team-a"}, **settings))
    assert stand_in.asked[0].headers["authorization"] == sent
    assert stand_in.asked[0].headers["x-scope-orgid"] == "team-a"
    assert "401" in text
    assert "store.bearer_token" in text
    for hidden in ("s3cret", "t0ken", "team-a"):
        assert hidden not in text


def test_credentials_in_the_address_are_used_and_never_shown(stand_in: Any, reply: Any, client_of: Any) -> None:
    stand_in.play(reply(403, b"nope"))
    client = client_of(stand_in.url.replace("//", "//ann:s3cret@"))
    text = refused(client)
    assert stand_in.asked[0].headers["authorization"] == "Basic YW5uOnMzY3JldA=="
    assert "s3cret" not in text + client.address
    assert "403: nope" in text


def test_a_rotated_token_file_is_read_again(
    stand_in: Any, reply: Any, matrix: Any, client_of: Any, tmp_path: Path
) -> None:
    stand_in.play(reply(body=matrix()))
    token = tmp_path / "token"
    token.write_text("one\n")
    client = client_of(stand_in.url, bearer_token_file=token)
    ask(client)
    token.write_text("two\n")
    ask(client)
    assert [asked.headers["authorization"] for asked in stand_in.asked] == ["Bearer one", "Bearer two"]
    token.unlink()
    with pytest.raises(SettingsError, match=r"store.bearer_token_file is .*token: No such file"):
        ask(client)


def test_a_token_with_a_line_break_is_refused_without_showing_it(stand_in: Any, client_of: Any) -> None:
    with pytest.raises(SettingsError, match="line breaks") as caught:
        ask(client_of(stand_in.url, bearer_token="abc\ndef"))  # noqa: S106 - made up
    assert "abc" not in str(caught.value)


def test_the_stores_wish_to_wait_is_honoured_and_capped(
    stand_in: Any, reply: Any, matrix: Any, client_of: Any, pauses: Pauses
) -> None:
    stand_in.play(
        reply(429, headers={"Retry-After": "7"}),
        reply(503, headers={"Retry-After": email.utils.formatdate(NOW + 9, usegmt=True)}),
        reply(429, headers={"Retry-After": "86400"}),
        reply(body=matrix()),
    )
    ask(client_of(stand_in.url))
    assert pauses.seconds == [7.0, 9.0, 60.0]


def test_pauses_grow_and_tries_end(stand_in: Any, reply: Any, client_of: Any, pauses: Pauses) -> None:
    stand_in.play(reply(503, {"status": "error", "errorType": "unavailable", "error": "ring is\n empty"}))
    text = refused(client_of(stand_in.url, retries=3))
    assert len(stand_in.asked) == 4
    assert "503: unavailable: ring is empty" in text
    assert all(0.25 * 2**i <= pause <= 0.5 * 2**i for i, pause in enumerate(pauses.seconds))
    assert len(pauses.seconds) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_other_refusals_are_not_tried_again(stand_in: Any, reply: Any, client_of: Any, status: int) -> None:
    stand_in.play(reply(status, {"status": "error", "errorType": "bad_data", "error": "parse error"}))
    with pytest.raises(RefusedError, match="bad_data: parse error") as caught:
        ask(client_of(stand_in.url))
    assert caught.value.status == status
    assert len(stand_in.asked) == 1


def test_a_query_that_ran_out_of_the_stores_time_is_not_repeated(stand_in: Any, reply: Any, client_of: Any) -> None:
    stand_in.play(reply(503, {"status": "error", "errorType": "timeout", "error": "query timed out"}))
    assert "timed out" in refused(client_of(stand_in.url))
    assert len(stand_in.asked) == 1


def test_a_login_page_with_status_200_is_named_for_what_it_is(stand_in: Any, reply: Any, client_of: Any) -> None:
    page = b"<!doctype html><html><title>Sign in</title></html>"
    for headers in ({"Content-Type": "text/html; charset=utf-8"}, {"Content-Type": "application/json"}):
        stand_in.play(reply(200, page, headers))
        text = refused(client_of(stand_in.url, bearer_token="run-out"))  # noqa: S106 - made up
        assert stand_in.url in text
        assert "status 200" in text
        assert headers["Content-Type"].split(";")[0] in text
        assert "sign-in page? check the token" in text
        assert "run-out" not in text


def test_a_redirect_is_not_followed_and_its_secrets_are_not_shown(stand_in: Any, reply: Any, client_of: Any) -> None:
    stand_in.play(reply(302, headers={"Location": "https://me:pw@login.example/in?state=abc"}))
    text = refused(client_of(stand_in.url))
    assert "redirect to https://login.example/in" in text
    assert "pw" not in text
    assert "abc" not in text
    assert len(stand_in.asked) == 1


def test_an_answer_that_breaks_off_is_tried_again(
    stand_in: Any, reply: Any, matrix: Any, client_of: Any, pauses: Pauses
) -> None:
    good = matrix({"instance": "a"}, [(NOW, 2.0)])
    stand_in.play(reply(body=good, cut=10), reply(body=good))
    assert ask(client_of(stand_in.url)).values.tolist() == [2.0]
    assert len(pauses.seconds) == 1


def test_a_small_packed_answer_that_unpacks_too_large_is_refused(stand_in: Any, reply: Any, client_of: Any) -> None:
    bomb = gzip.compress(b" " * (3 * 2**20))
    assert len(bomb) < 2**14
    stand_in.play(reply(200, bomb, {"Content-Encoding": "gzip", "Content-Type": "application/json"}))
    text = refused(client_of(stand_in.url, max_answer_mib=1))
    assert "store.max_answer_mib (1 MiB)" in text
    stand_in.play(reply(200, b"no gzip", {"Content-Encoding": "gzip"}))
    assert "damaged compressed answer" in refused(client_of(stand_in.url))


def test_a_store_that_does_not_answer_in_time_is_tried_once_more(stand_in: Any, reply: Any, client_of: Any) -> None:
    never = threading.Event()
    stand_in.play(reply(wait=never))
    text = refused(client_of(stand_in.url, timeout_seconds=0.2))
    never.set()
    assert "did not answer within 0.2 s: raise store.timeout_seconds" in text
    assert len(stand_in.asked) == 2


def test_a_refused_connection_says_so(client_of: Any, pauses: Pauses) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    text = refused(client_of(url, retries=2))
    assert text.startswith(f"{url} refused the connection: check that the store runs there")
    assert len(pauses.seconds) == 2


def test_an_unknown_host_says_so_at_once(client_of: Any, pauses: Pauses) -> None:
    text = refused(client_of("http://no-such-host.invalid:9090"))
    assert "no-such-host.invalid" in text
    assert "host name is not known" in text
    assert pauses.seconds == []


def test_a_proxy_of_the_environment_does_not_stand_before_this_host(
    stand_in: Any, reply: Any, matrix: Any, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    stand_in.play(reply(body=matrix()))
    ask(client_of(stand_in.url))
    assert "refused the connection" in refused(client_of("http://store.example:9090", retries=0))


@pytest.mark.parametrize("url", [None, "", "http://", "http://[::1"])
def test_an_address_that_is_none_is_refused_at_once(url: str | None) -> None:
    with pytest.raises(SettingsError, match=r"store\.url is"):
        StoreClient(StoreSettings(url=url))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's and a client's certificate, made by openssl."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test-ca", "-days", "2")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return folder


@pytest.fixture
def tls_url(certificates: Path) -> Iterator[str]:
    """A server that wants a client certificate."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep the test output clean."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A failed handshake is what some tests are about."""

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_client_certificate_and_an_own_authority_open_the_way(
    tls_url: str, certificates: Path, client_of: Any
) -> None:
    own = {"client_certificate_file": certificates / "client.pem", "client_key_file": certificates / "client.key"}
    assert ask(client_of(tls_url, ca_file=certificates / "ca.pem", **own)).labels == []
    assert ask(client_of(tls_url, verify_tls=False, **own)).labels == []


def test_an_unknown_authority_names_the_setting(tls_url: str, client_of: Any, pauses: Pauses) -> None:
    text = refused(client_of(tls_url))
    assert "TLS handshake failed" in text
    assert "store.ca_file" in text
    assert pauses.seconds == []


def test_a_missing_client_certificate_names_the_setting(tls_url: str, certificates: Path, client_of: Any) -> None:
    assert "store.client_certificate_file" in refused(client_of(tls_url, ca_file=certificates / "ca.pem", retries=0))


def test_certificate_files_that_cannot_be_used_are_named(certificates: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"store.ca_file is .*none.pem"):
        StoreClient(StoreSettings(url="https://x", ca_file=tmp_path / "none.pem"))
    with pytest.raises(SettingsError, match=r"store.client_certificate_file is .*client.key.*client.pem"):
        StoreClient(
            StoreSettings(
                url="https://x",
                client_certificate_file=certificates / "client.key",
                client_key_file=certificates / "client.pem",
            )
        )

"""The broker of the Messages API: what of an answer a worker gets, and what it never sees."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from guards.exceptions import InvalidInput, SecretUnavailable
from pipelines.runners.claude.broker import upstream
from pipelines.runners.claude.broker.exchange import AT_ONCE
from pipelines.runners.claude.broker.upstream import Upstream, Veil
from tests.pipelines.brokers import (
    KEY,
    STREAM_HEAD,
    Api,
    answered,
    broker,
    events,
    message,
    read,
    request,
)

pytestmark = [pytest.mark.invariant(15), pytest.mark.fault("sister-35")]


# --- Answers --------------------------------------------------------------------------------------


def test_a_redirect_is_not_followed(api, desk):
    with Api() as elsewhere:
        place = f"Location: {elsewhere.url}/v1/messages"
        for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent"):
            api.script = answered(b"", place, status=status)
            answer = desk.ask()
            assert (answer.status, answer.said[:12]) == (403, "no-redirect:")
            assert elsewhere.url.encode() not in answer.head + answer.body
        assert elsewhere.asked == []
    assert len(api.asked) == 4


def test_of_an_answers_fields_only_those_are_passed_on_that_a_client_needs(api, desk):
    fields = ("Request-Id: r", "Retry-After: 3", "Set-Cookie: a=b", "Anthropic-Ratelimit-X: 1")
    api.script = answered(b'{"error": 1}', *fields, "Server: s", status="429 Too Many")
    answer = desk.ask()
    assert (answer.status, answer.body) == (429, b'{"error": 1}')
    for name in (b"request-id: r", b"retry-after: 3", b"anthropic-ratelimit-x: 1"):
        assert name in answer.head.lower()
    assert b"cookie" not in answer.head.lower() and b"server" not in answer.head.lower()


@pytest.mark.parametrize("said", [("gzip",), ("gzip", "identity"), ("identity", "br"), ("x",)])
def test_an_answer_in_a_form_that_was_not_asked_for_is_not_passed_on(api, desk, said):
    api.script = answered(b"\x1f\x8b", *(f"Content-Encoding: {one}" for one in said))
    assert desk.ask().status == 502
    api.script = answered(b"{}", "Content-Encoding: identity")
    assert desk.ask().status == 200


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized", "500 Broken"])
def test_an_api_that_repeats_the_key_is_not_passed_on_with_it(api, desk, status):
    """Some that stand before one do, when they refuse it."""
    said = json.dumps({"error": {"message": f"{KEY} is no key, nor is {KEY[:-1]}"}})
    api.script = answered(said.encode(), f"Request-Id: {KEY}", status=status)
    answer = desk.ask()
    assert KEY.encode() not in answer.head + answer.body
    assert answer.said == f"[the key] is no key, nor is {KEY[:-1]}"


@pytest.mark.parametrize(
    "said", ["HTTP/1.1 200 OK\r\nx-api-key : {}\r\n\r\n", "x-api-key: {}\r\n\r\n"]
)
def test_what_went_wrong_is_told_and_logged_without_the_key(api, desk, caplog, said):
    api.script = lambda line: (line.sendall(said.format(KEY).encode()), "close")[1]
    answer = desk.ask()
    assert (answer.status, "[the key]" in answer.said) == (502, True)
    assert KEY not in answer.said
    assert "[the key]" in caplog.text and KEY not in caplog.text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 19, 20, 1000])
def test_the_key_is_hidden_wherever_its_text_is_cut(size):
    text = f"{KEY[:5]}{KEY} {KEY[:-1]} sk-ant {KEY}{KEY}{KEY[:4]}".encode()
    veil = Veil(KEY.encode())
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    given = b"".join([*map(veil.take, pieces), veil.take(b"")])
    assert given == text.replace(KEY.encode(), b"[the key]")
    assert veil.take(b"no key") == b"no key"  # nothing else is held back


def test_what_an_api_says_unasked_is_no_answer_to_the_next(api, desk):
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    api.script = lambda line: line.sendall(whole + b"{}" + whole + b"[]")
    assert [desk.ask().body for _ in range(3)] == [b"{}"] * 3
    assert api.connections == 3


def test_a_stream_is_passed_on_as_it_comes(api, desk):
    has_come = threading.Event()
    whole = events()

    def slowly(line: socket.socket) -> str:
        line.sendall(STREAM_HEAD + whole[:60])
        assert has_come.wait(20)
        line.sendall(whole[60:])
        return "close"

    api.script = slowly
    with desk.connect() as line:
        line.sendall(request({"stream": True}))
        said = b""
        while whole[:60] not in said:
            said += line.recv(1000)
        has_come.set()
        rest = read(line)
        assert whole[60:] in said + rest.body or whole[60:] in rest.head + rest.body


def test_two_are_answered_at_once(api, desk):
    both = threading.Barrier(2, timeout=20)

    def together(line: socket.socket) -> None:
        both.wait()
        answered(message())(line)

    api.script = together
    threads = [threading.Thread(target=desk.ask) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert not both.broken
    assert len(api.asked) == 2


def test_no_more_than_a_few_are_answered_at_once(api, desk):
    """The control of the one above: what waits is answered when another one has been."""
    inside, most, lock = 0, 0, threading.Lock()
    goes = threading.Event()

    def counting(line: socket.socket) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            if inside == AT_ONCE:
                threading.Timer(0.2, goes.set).start()
        assert goes.wait(20)
        with lock:
            inside -= 1
        answered(message())(line)

    api.script = counting
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(desk.ask().status)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert (answers, most) == ([200] * 8, AT_ONCE)


def test_a_connection_to_the_api_is_used_again_and_a_dead_one_is_not(api, desk):
    assert [desk.ask().status for _ in range(3)] == [200] * 3
    assert api.connections == 1
    plain = api.script
    api.script = lambda line: (plain(line), "close")[1]
    assert [desk.ask().status for _ in range(2)] == [200] * 2
    api.script = plain
    assert desk.ask().status in (200, 502)  # it may learn of the end while it asks
    assert desk.ask().status == 200


@pytest.mark.parametrize(
    ("said", "status", "is_whole"),
    [
        (b"", 502, True), (b"HTTP/1.1 200", 502, True), (b"no http at all\r\n\r\n", 502, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 200, False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 200, False),
        (b"HTTP/1.1 200 OK\r\n" + b"X: %s\r\n" % (b"x" * 300_000) + b"\r\n", 502, True),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("then", ["ends", "hangs"])
def test_an_api_that_ends_early_or_hangs_is_told_from_one_that_answers(
    api, said, status, is_whole, then
):
    api.script = lambda line: (line.sendall(said), "close" if then == "ends" else None)[1]
    with broker(silence=0.3) as desk:
        answer = desk.ask()
        assert (answer.status, answer.is_whole) == (status, is_whole)
        api.script = answered(message())
        assert desk.ask().status == 200


def test_an_api_that_is_not_there_is_an_error_that_may_pass(settings):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        settings.CLAUDE_BASE_URL = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with broker() as desk:
            answer = desk.ask()
            assert answer.status == 502
            assert b"x-should-retry: true" in answer.head.lower()
        assert desk.broker.meter.tally().requests == 0


def test_who_is_too_slow_is_told_so_and_holds_up_nobody(api):
    for begun in (b"", b"POST /v1/messages HT", request()[:-3]):
        with broker(seconds=0.3) as desk, desk.connect() as slow:
            slow.sendall(begun)
            assert desk.ask().status == 200
            assert read(slow).status == 408


def test_for_who_has_left_nobody_is_asked_on(api, desk):
    has_ended = threading.Event()

    def hangs(line: socket.socket) -> str:
        line.sendall(STREAM_HEAD + events(input_tokens=7)[:150])
        while line.recv(1000):
            pass
        has_ended.set()
        return "close"

    api.script = hangs
    with desk.connect() as line:
        line.sendall(request())
        line.recv(1000)
        assert not has_ended.is_set()
    assert has_ended.wait(20)


# --- TLS ------------------------------------------------------------------------------------------


def test_a_certificate_that_the_system_does_not_know_is_not_spoken_to(
    settings, tmp_path, monkeypatch
):
    certificate, private = tls_files(tmp_path)
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(certificate, private)
    with Api(secure=secure) as found:
        url = found.url.replace("http://127.0.0.1", "https://localhost")
        settings.CLAUDE_BASE_URL = url
        upstream._verified.cache_clear()
        with broker() as desk:
            answer = desk.ask()
            assert (answer.status, "CERTIFICATE_VERIFY_FAILED" in answer.said) == (502, True)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        upstream._verified.cache_clear()
        with broker() as desk:
            assert desk.ask().status == 200
        settings.CLAUDE_BASE_URL = url.replace("localhost", "127.0.0.1")
        with broker() as desk:  # known, and of another host
            assert desk.ask().status == 502
        assert len(found.asked) == 1
    upstream._verified.cache_clear()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "https://x:99999",
        "https://a:b@x",
        "https://x/?a=b",
        "x",
        "https://x/\u00e4",
        "https://x/a b",
    ],
)
def test_what_is_no_address_of_an_api_is_refused(settings, url):
    settings.CLAUDE_BASE_URL = url
    with pytest.raises(InvalidInput) as refused:
        Upstream(KEY)
    assert refused.value.field == "CLAUDE_BASE_URL"


@pytest.mark.parametrize("key", ["", " ", "a\nb", "a\r\nHost: x", "\u00e4", "a\x00"])
def test_what_could_be_no_key_is_never_sent(settings, key):
    settings.CLAUDE_BASE_URL = ""
    with pytest.raises(SecretUnavailable):
        Upstream(key)


def tls_files(directory: Path) -> tuple[Path, Path]:
    """A certificate of `localhost` that nobody signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.now(UTC), timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "certificate.pem", directory / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    private.write_bytes(plain)
    return certificate, private

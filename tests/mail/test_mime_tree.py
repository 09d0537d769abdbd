"""The walker: delimiters on raw bytes, chosen bodies, attachments, structure (W10, DES-025)."""

from __future__ import annotations

import hashlib

import pytest

from mail import mime
from tests.mail.builders import lines, multipart, part, plain

TEXT = part("text/plain", b"hello")
HTML = part("text/html", b"<p>hello</p>")
PDF = part("application/pdf", b"JVBERi0=", "Content-Transfer-Encoding: base64")
FROM = ("From: alice@example.org",)


def names(raw: bytes) -> list[tuple[str | None, str]]:
    return [(one.name, one.type) for one in mime.parse(raw).parts if one.is_attachment]


@pytest.mark.fault("sister-18")
def test_text_is_found_deep_inside_signed_mixed_related_alternative() -> None:
    image = part("image/png", b"x", "Content-Disposition: inline")
    related = multipart("related", "r", HTML, image)
    alternative = multipart("alternative", "a", TEXT, related)
    parsed = mime.parse(multipart("mixed", "m", alternative, PDF, headers=FROM))
    assert parsed.text == "hello"
    assert parsed.html == "<p>hello</p>"
    assert [one.path for one in parsed.parts] == ["1.1", "1.2.1", "1.2.2", "2"]
    assert [one.type for one in parsed.parts if one.is_attachment] == [
        "image/png",
        "application/pdf",
    ]
    assert parsed.structure.type == "multipart/mixed"
    assert parsed.structure.children[0].children[1].type == "multipart/related"


@pytest.mark.fault("sister-22", "W10")
def test_a_boundary_that_begins_like_another_is_not_it() -> None:
    inner = multipart("mixed", "b1inner", TEXT, part("text/plain", b"--b1inner-not\r\n--b1x"))
    parsed = mime.parse(multipart("mixed", "b1", inner, PDF, headers=FROM))
    assert [one.content for one in parsed.parts] == [
        b"hello",
        b"--b1inner-not\r\n--b1x",
        b"%PDF-",
    ]
    assert parsed.defects == ()


@pytest.mark.parametrize("padding", ["", " ", "\t ", "\r"])
def test_space_behind_a_delimiter_is_padding(padding: str) -> None:
    raw = lines(*FROM, "Content-Type: multipart/mixed; boundary=b", "", f"--b{padding}", "", "hi",
                f"--b--{padding}", "epilogue")  # fmt: skip
    assert mime.parse(raw).text == "hi"


def test_a_delimiter_counts_at_the_start_of_a_line_only() -> None:
    raw = lines(*FROM, "Content-Type: multipart/mixed; boundary=b", "", "--b", "", "x --b", " --b",
                "--b--")  # fmt: skip
    assert mime.parse(raw).text == "x --b\n --b"


def test_a_missing_close_delimiter_loses_nothing() -> None:
    raw = lines(*FROM, "Content-Type: multipart/mixed; boundary=b", "", "--b", "", "hi", "--b",
                "Content-Type: a/b", "", "rest")  # fmt: skip
    parsed = mime.parse(raw)
    assert parsed.text == "hi"
    assert parsed.parts[1].content == b"rest\r\n"
    assert "mime.missing-close" in parsed.defects


@pytest.mark.parametrize(
    ("parameter", "defect"),
    [
        ("", "mime.bad-boundary"),
        ('; boundary=""', "mime.bad-boundary"),
        ("; boundary=never", "mime.boundary-not-found"),
        ("; boundary=" + "x" * 300, "mime.bad-boundary"),
    ],
)
def test_a_multipart_that_cannot_be_split_is_text(parameter: str, defect: str) -> None:
    parsed = mime.parse(plain(f"Content-Type: multipart/mixed{parameter}", text=b"--b\r\n\r\nhi"))
    assert parsed.text == "--b\n\nhi"
    assert defect in parsed.defects


def test_a_forwarded_message_is_one_attachment_and_is_never_read() -> None:
    inner = multipart("mixed", "in", TEXT, PDF, headers=("From: owner@example.org",))
    raw = multipart("mixed", "b", part("text/plain", b"see"), part("message/rfc822", inner),
                    headers=FROM)  # fmt: skip
    parsed = mime.parse(raw)
    assert parsed.text == "see"
    assert names(raw) == [(None, "message/rfc822")]
    assert parsed.parts[1].sha256 == hashlib.sha256(parsed.parts[1].content).hexdigest()


def test_parts_of_a_digest_are_messages() -> None:
    raw = multipart("digest", "d", b"\r\nFrom: a@x\r\n\r\nhi", headers=FROM)
    assert names(raw) == [(None, "message/rfc822")]


def test_a_text_that_is_marked_as_attachment_is_no_body() -> None:
    log = part("text/plain", b"log", 'Content-Disposition: attachment; filename="a.log"')
    raw = multipart("mixed", "b", log, TEXT, part("text/plain", b"second"), headers=FROM)
    assert mime.parse(raw).text == "hello"
    assert names(raw) == [("a.log", "text/plain"), (None, "text/plain")]


def test_a_part_without_headers_is_text() -> None:
    raw = lines(*FROM, "Content-Type: multipart/mixed; boundary=b", "", "--b", "no header here",
                "--b--")  # fmt: skip
    assert mime.parse(raw).text == "no header here"


@pytest.mark.parametrize("kind", ["text", "/", "text/", "a b/c", "text/plain/x", "x" * 200 + "/y"])
def test_a_content_type_that_is_none_is_text(kind: str) -> None:
    parsed = mime.parse(plain(f"Content-Type: {kind}"))
    assert parsed.text == "hello\n"
    assert "header.bad-content-type" in parsed.defects


@pytest.mark.parametrize("eol", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_gives_the_same_parts(eol: bytes) -> None:
    raw = multipart("mixed", "b1", TEXT, PDF, headers=FROM).replace(b"\r\n", eol)
    parsed = mime.parse(raw)
    assert parsed.text == "hello"
    assert [one.content for one in parsed.parts] == [b"hello", b"%PDF-"]
    assert parsed.sha256 == hashlib.sha256(raw).hexdigest()


NAMES = [
    ("filename*0*=UTF-8''te%73t; filename*1*=%C3%9F.pdf", "testß.pdf"),
    ('filename*0="te"; filename*1="st.pdf"', "test.pdf"),
    ('filename*1="st.pdf"; filename*0="te"', "test.pdf"),
    ("filename*=iso-8859-1''%FCber.txt", "über.txt"),
    ("filename*=x-unknown''%C3%BCber.txt", "über.txt"),
    ("filename*=utf-8''a.txt; filename=b.txt", "a.txt"),
    ('filename="=?utf-8?q?=C3=BCber=2Etxt?="', "über.txt"),
    ("filename=my report (1).pdf", "my report (1).pdf"),
    ('filename="a\\"b.txt"', 'a"b.txt'),
    ('filename="a;b.txt"', "a;b.txt"),
    ('filename="unclosed.txt', "unclosed.txt"),
    ("filename*0*=us-ascii'en'This%20is%20; filename*1*=%2A%2A; filename*2=\"it!\"",
     "This is **it!"),
    ('filename="../../../etc/cron.d/x"', "../../../etc/cron.d/x"),
    ('filename="a\x00b\x07.txt"', "a b .txt"),
    ('filename=""', None),
    ("filename", None),
    ("filename*", None),
    ("filename*99999999999999999999=x", None),
]  # fmt: skip


@pytest.mark.fault(
    "attachments-01", "attachments-03", "attachments-08", "attachments-11", "attachments-13",
    "charset-05", "headers-07", "sister-25",
)  # fmt: skip
@pytest.mark.parametrize(("parameters", "name"), NAMES)
def test_attachment_names_are_text_as_it_was_meant(parameters: str, name: str | None) -> None:
    attachment = part("a/b", b"x", f"Content-Disposition: attachment; {parameters}")
    assert names(multipart("mixed", "b", TEXT, attachment, headers=FROM)) == [(name, "a/b")]


@pytest.mark.fault("attachments-13")
def test_a_fold_inside_a_continuation_is_a_space() -> None:
    header = 'Content-Disposition: attachment; filename*0="Report\r\n 09.x"; filename*1=lsx'
    raw = multipart("mixed", "b", TEXT, part("a/b", b"x", header), headers=FROM)
    assert names(raw) == [("Report 09.xlsx", "a/b")]


def test_a_name_on_the_content_type_counts_where_the_disposition_has_none() -> None:
    raw = multipart("mixed", "b", TEXT, part('a/b; name="x.bin"', b"x"), headers=FROM)
    assert names(raw) == [("x.bin", "a/b")]

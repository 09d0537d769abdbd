"""What a stage wrote becomes the pipe only in the form its command declares."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from pipelines import pipes, schema, specification
from pipelines.exceptions import DocumentInvalid, OutputInvalid
from tests.pipelines.factories import cli


def after(output: bytes, **fields: object) -> pipes.Written | None:
    return pipes.written(specification.read(cli(**fields)), output)


def test_text_is_kept_as_it_is():
    assert after(b"h\xc3\xa9llo\n") == pipes.Written("héllo\n")


def test_json_is_the_default():
    assert after(b'{"a": [1]}', output_schema=...) == pipes.Written({"a": [1]})


@pytest.mark.parametrize(
    ("output", "fields", "reason"),
    [
        (b"\xff", {}, "not UTF-8"),
        (b"a\0b", {}, "NUL"),
        (b"no json", {"output_schema": ...}, "not JSON"),
        (b"", {"output_schema": ...}, "not JSON"),
        (b"NaN", {"output_schema": ...}, "not a JSON number"),
        (b"1e999", {"output_schema": ...}, "beyond"),
        (b'"\\u0000"', {"output_schema": ...}, "NUL"),
        (b'"\\ud800"', {"output_schema": ...}, "half a character"),
        (b"[" * 5000 + b"]" * 5000, {"output_schema": ...}, "not JSON"),
        (b"[" * 70 + b"]" * 70, {"output_schema": ...}, "deeper"),
        (b'"' + b"x" * 1_000_000 + b'"', {"output_schema": ...}, "larger than 1000000"),
        (b"5", {"output_schema": {"type": "string"}}, "not of type 'string'"),
        (b'{"a": 1}', {"output_schema": {"$ref": "#/$defs/no"}}, "cannot be applied"),
        (b"no json", {"output_schema": {"type": "object"}, "mode": "passthrough"}, "not JSON"),
    ],
)
def test_an_output_of_another_form_is_refused(output, fields, reason):
    with pytest.raises(OutputInvalid, match=reason):
        after(output, **fields)


def test_what_a_passthrough_stage_wrote_is_no_pipe():
    assert after(b"anything", mode="passthrough", output_schema=...) is None


def test_local_references_are_followed_and_others_never():
    local = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}

    schema.check_output(5, local)
    with pytest.raises(OutputInvalid):
        schema.check_output("5", local)
    with pytest.raises(OutputInvalid, match="cannot be applied"):
        schema.check_output(5, {"$ref": "http://127.0.0.1:9/s.json"})


def test_a_pattern_takes_linear_time_whatever_the_output():
    with pytest.raises(OutputInvalid):
        schema.check_output("a" * 50_000 + "!", {"pattern": "^(a+)+$"})


@pytest.mark.parametrize(
    "names",
    [
        {"patternProperties": {"^(a+)+$": False}},
        {"patternProperties": {"^(a+)+$": True}, "additionalProperties": False},
    ],
)
def test_a_pattern_over_names_takes_linear_time_too(names):
    hostile = {"a" * 50_000 + "!": 1, "a": 1}
    with pytest.raises(OutputInvalid):
        schema.check_output(hostile, names)


def test_names_that_patterns_and_properties_allow_are_taken():
    wanted = {
        "properties": {"id": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": "boolean"},
    }
    schema.check_output({"id": 1, "x-a": "b", "other": True}, wanted)
    for wrong, place in (({"x-a": 1}, "x-a"), ({"other": 1}, "other"), ({"id": "1"}, "id")):
        with pytest.raises(OutputInvalid, match=place):
            schema.check_output(wrong, wanted)


def test_unique_items_are_each_looked_at_once():
    wanted = {"uniqueItems": True}
    schema.check_output([{"a": number} for number in range(50_000)], wanted)
    schema.check_output([1, True, "1", [1], [True], {"a": 1}, {"a": True}, None], wanted)
    for twice in ([1, 1.0], [{"a": 1, "b": [2]}, {"b": [2], "a": 1}], [None, None]):
        with pytest.raises(OutputInvalid, match="non-unique"):
            schema.check_output(twice, wanted)


@pytest.mark.parametrize(
    "unusable",
    [
        {"items": {"pattern": "(?=a)"}},
        {"patternProperties": {"(?=a)": True}},
        {"allOf": [{"unevaluatedProperties": False}]},
    ],
)
def test_a_schema_that_could_not_be_applied_in_linear_time_is_refused(unusable):
    with pytest.raises(DocumentInvalid, match="output_schema"):
        specification.read(cli(output_schema=unusable))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@rounds(max_examples=60, deadline=None)
@given(json_values)
def test_what_passes_can_be_stored_and_read_back(value):
    try:
        written = after(json.dumps(value).encode(), output_schema=...)
        kept = written.data if written is not None else None
    except OutputInvalid:
        return
    text = json.dumps(kept)
    assert "\\u0000" not in text
    assert all(math.isfinite(x) for x in _floats(kept))


def _floats(value: object) -> list[float]:
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for inner in value for x in _floats(inner)] if isinstance(value, list) else []


LONG = "x" * 20_000


@pytest.mark.parametrize(
    "data",
    [
        LONG,
        LONG + "é\u2028\x7f",
        LONG + '"',
        LONG + "\\",
        LONG + "\n",
        LONG + "\x1f",
        {"data": {"data": LONG, "files": []}, "é": LONG},
        {"a": {}, "b": [], "c": None, "d": [LONG, {"e": LONG}], '"\n': 1.5},
        {str(number): LONG for number in range(9)},
        {1: LONG},
    ],
)
def test_a_long_text_is_encoded_as_any_other(data):
    pipe = {"data": data, "files": []}
    usual = json.dumps(pipe, ensure_ascii=False, separators=(",", ":")).encode()

    assert pipes.encode(pipe) == usual


#: What JSON readers are known to differ about, beside what no reader takes.
DISPUTED = [
    "18446744073709551615 18446744073709551616 -9223372036854775808 -9223372036854775809 -0 -0.0",
    "9223372036854775807 9223372036854775808 9223372036854775808.0 1e19 -1e19 123456789012345678e3",
    "1e308 1e309 -1e400 1e-400 5e-324 0e1 1E5 1.0 0.1 1e16 9007199254740993 9007199254740993.0",
    "1. .5 01 +1 - 1e 0x1 1_000 NaN Infinity -Infinity nan True None null true",
    r'"\ud800" "\udc00" "\ud83d\ude00" "\udc00\ud800" "\ud800x" "\u0000" "\\u0000"',
    r'"\x41" "\/" "\u00e9"',
    r'{"a":1,"a":2} {"a":1,"\u0061":2} {"a":1,} [1,] {1:2} {"\ud800":1} {"\u0000":1} []',
]
UNUSUAL = [
    *(word.encode() for line in DISPUTED for word in line.split()),
    *(
        b" \t\r\n1 ",
        b"\x0b1",
        b"\xc2\xa01",
        b"1\0",
        b"\0",
        b"",
        b" ",
        b"1 2",
        b"\xef\xbb\xbf1",
        b"// 1",
    ),
    *(
        b'"\t"',
        b'"\n"',
        b'"\x7f"',
        b'"\0"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'"\xf4\x90"',
    ),
    *(b"[" * deep + b"]" * deep for deep in (64, 65, 66, 1000, 1024, 1025, 100_000)),
    *(b'{"a":' * deep + b"1" + b"}" * deep for deep in (64, 65, 1100)),
    *(b"1" * digits for digits in (15, 16, 17, 19, 20, 300, 4300, 4301)),
]


def usual(output: bytes) -> str:
    """What the standard library alone makes of an output: its value, or why it is refused."""
    try:
        text = output.decode()
        assert "\0" not in text
        value = json.loads(text, parse_constant=lambda _: json.loads(""))
        pipes.check_storable(value)
    except (AssertionError, ValueError, RecursionError):
        return "refused"
    return repr(value)


def ours(output: bytes) -> str:
    try:
        written = after(output, output_schema=...)
    except OutputInvalid:
        return "refused"
    return repr(written and written.data)


@pytest.mark.parametrize("output", UNUSUAL, ids=lambda output: repr(output[:30]))
def test_an_output_is_read_as_the_standard_library_reads_it(output):
    assert ours(output) == usual(output)
    assert ours(b'{"a": [' + output + b"]}") == usual(b'{"a": [' + output + b"]}")


@rounds(max_examples=120, deadline=None)
@given(
    st.lists(
        st.sampled_from([*b'{}[]:,"0123456789-+.eE\\u\0d8 \n\xc3\xa9\xed\xa0\xff'])
        | st.sampled_from(list(b'"')),
        max_size=40,
    ).map(bytes)
    | st.binary(max_size=30)
    | st.from_regex(rb"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?\Z")
    | json_values.map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="replace"))
)
def test_any_output_is_read_as_the_standard_library_reads_it(output):
    assert ours(output) == usual(output)


@rounds(max_examples=120, deadline=None)
@given(json_values)
def test_a_child_reads_the_value_that_was_looked_at(value):
    try:
        kept = after(json.dumps(value).encode(), output_schema=...)
    except OutputInvalid:
        return
    pipe = {"data": kept and kept.data, "files": []}
    assert repr(json.loads(pipes.encode(pipe))) == repr(pipe)

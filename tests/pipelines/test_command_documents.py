"""The published form of a command, and how a file is read: strictly, with field and reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import settings as rounds
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from guards.exceptions import InvalidInput
from pipelines import reading, schema, specification, write_sets
from pipelines.exceptions import DocumentInvalid, DocumentUnreadable
from tests.pipelines.factories import cli

CLAUDE = {
    "schema": "command/1",
    "name": "think",
    "serial": 1,
    "prompt": "Think.",
    "budget": {"rounds": 1},
}


def claude(**fields: object) -> dict:
    document = {**CLAUDE, **fields}
    return {key: value for key, value in document.items() if value is not ...}


WRONG = [
    (cli(schema="command/2"), "schema", "'command/1' was expected"),
    (cli(schema=...), "schema", "is required"),
    (cli(name="Bad Name"), "name", "does not match"),
    (cli(name="greet\n"), "name", "does not match"),
    (cli(name="reply"), "name", "built in"),
    (cli(name="send"), "name", "built in"),
    (cli(serial=0), "serial", "less than the minimum"),
    (cli(serial="5"), "serial", "not of type 'integer'"),
    (cli(serial=10.5), "serial", "not of type 'integer'"),
    (cli(serial=10.0), "serial", "not of type 'integer'"),
    (cli(serial=True), "serial", "not of type 'integer'"),
    (cli(serial=...), "serial", "is required"),
    (cli(runner="http"), "runner", "not one of"),
    (cli(mode="pipe"), "mode", "not one of"),
    (cli(extra=1), "extra", "unknown key"),
    (cli(binary=...), "binary", "either binary or steps"),
    (cli() | {"steps": [{"binary": "cat"}]}, "binary", "either"),
    (cli(prompt="x"), "prompt", "does not belong"),
    (cli(budget={"rounds": 1}), "budget", "does not belong"),
    (cli(args=[{"name": "a"}]), "args[0].type", "is required"),
    (cli(args=[{"name": "a", "type": "text"}]), "args[0].type", "not one of"),
    (cli(args=[{"name": "a", "type": "string", "x": 1}]), "args[0].x", "unknown key"),
    (cli(args=[{"name": "a", "type": "enum"}]), "args[0].enum", "is required"),
    (cli(args=[{"name": "a", "type": "integer", "max_length": 5}]), "args[0].max_length", "belong"),
    (
        cli(args=[{"name": "a", "type": "string", "max_length": "500"}]),
        "args[0].max_length",
        "integer",
    ),
    (
        cli(args=[{"name": "a", "type": "string", "max_length": 10.5}]),
        "args[0].max_length",
        "integer",
    ),
    (cli(args=[{"name": "--a", "type": "string"}]), "args[0].name", "does not match"),
    (
        cli(args=[{"name": "a", "type": "string", "from_pipe": "data"}]),
        "args[0].from_pipe",
        "match",
    ),
    (cli(args=[{"name": "a", "type": "string"}] * 2), "args[1].name", "stands twice"),
    (
        cli(args=[{"name": n, "type": "string", "position": 1} for n in "ab"]),
        "args[1].position",
        "is taken",
    ),
    (
        cli(
            args=[
                {"name": "a", "type": "string", "position": 1},
                {"name": "b", "type": "string", "position": 2, "required": True},
            ]
        ),
        "args[1].required",
        "cannot follow the optional 'a'",
    ),
    (cli(timeout=30), "timeout", "not of type 'string'"),
    (cli(timeout="0s"), "timeout", "does not match"),
    (cli(timeout="soon"), "timeout", "does not match"),
    (cli(timeout="9h"), "timeout", "is longer than"),
    (cli(valid_until="tomorrow"), "valid_until", "does not match"),
    (cli(valid_until="2027-01-01T00:00:00"), "valid_until", "does not match"),
    (cli(valid_until="2027-02-31T00:00:00Z"), "valid_until", "no date and time"),
    (cli(valid_until="0001-01-01T00:00:00+23:59"), "valid_until", "no date and time"),
    (cli(write_set=["a//b"]), "write_set[0]", "segment ''"),
    (cli(write_set=["ok", "a/../b"]), "write_set[1]", "segment '..'"),
    (cli(write_set=["/etc"]), "write_set[0]", "is absolute"),
    (cli(write_set="a"), "write_set", "not of type 'array'"),
    (cli(env_vars=["lower"]), "env_vars[0]", "does not match"),
    (cli(env_vars=[{"name": "TOKEN"}]), "env_vars[0].secret", "is required"),
    (cli(env_vars=["A", "A"]), "env_vars", "stands twice"),
    (cli(files=True), "output_schema", "not of type 'object'"),
    (cli(files=True, mode="passthrough", output_schema={}), "mode", "was expected"),
    (cli(output_schema="json"), "output_schema", "was expected"),
    (cli(output_schema={"type": "objekt"}), "output_schema.type", "is not valid"),
    (
        cli(output_schema={"items": {"$ref": "https://example.org/s.json"}}),
        "output_schema.items.$ref",
        "not a local reference",
    ),
    (cli(steps=[]), "steps", "non-empty"),
    (cli(steps=[{"binary": "cat", "args": []}]), "steps[0].args", "unknown key"),
    (cli(steps=[{"binary": "cat"}], args=[]), "args", "does not belong"),
    (cli(steps=[{"binary": "cat"}], fixed_args=["x"]), "fixed_args", "does not belong"),
    (cli(fixed_args=["a\0b"]), "fixed_args[0]", "does not match"),
    (cli(project="a__b"), "project", "does not match"),
    (cli(reply="no"), "reply", "not of type 'boolean'"),
    (claude(prompt=...), "prompt", "is required"),
    (claude(budget=...), "budget", "is required"),
    (claude(budget={"rounds": 0}), "budget.rounds", "less than the minimum"),
    (claude(budget={"rounds": 1, "max_usd": 0}), "budget.max_usd", "minimum"),
    (claude(budget={"rounds": 1, "max": 1}), "budget.max", "unknown key"),
    (claude(binary="echo"), "binary", "does not belong"),
    (claude(tools=["Read", "Read"]), "tools", "non-unique"),
]


@pytest.mark.fault("sister-1", "sister-36", "sister-49")
@pytest.mark.parametrize(("document", "field", "reason"), WRONG)
def test_it_names_the_field_and_the_reason(document, field, reason):
    with pytest.raises(DocumentInvalid) as refusal:
        specification.read(document)

    assert refusal.value.field == field, refusal.value.detail
    assert reason in refusal.value.detail


def test_it_lists_several_problems_at_once():
    with pytest.raises(DocumentInvalid) as refusal:
        specification.read(cli(extra=1, serial="x"))

    assert "extra: unknown key" in refusal.value.detail
    assert "serial: 'x' is not of type" in refusal.value.detail


def test_every_field_of_the_design_is_read():
    spec = specification.read(
        cli(
            mode="passthrough", description="Says it.", serial=3, timeout="2m",
            args=[
                {"name": "n", "type": "integer", "required": True, "position": 2,
                 "description": "How often."},
                {"name": "kind", "type": "enum", "enum": ["a", "b"]},
                {"name": "title", "type": "string", "max_length": 5, "from_pipe": "/data/title"},
            ],
            fixed_args=["wall"], output_schema="text", files=False, write_set=["docs/a.md"],
            env_vars=["BIFF_TOKEN", {"name": "OTHER", "secret": "env:X"}],
            valid_until="2027-01-31T12:00:00+02:00", end_of_options=True, repeatable=True,
            reply=False, project="house",
        )
    )  # fmt: skip

    assert (spec.mode, spec.timeout, spec.serial, spec.project) == (
        "passthrough",
        120.0,
        3,
        "house",
    )
    assert spec.steps[0].fixed_args == ("wall",)
    assert spec.environment == {"BIFF_TOKEN": "BIFF_TOKEN", "OTHER": "env:X"}
    assert spec.valid_until is not None and spec.valid_until.isoformat().startswith("2027-01-31T10")
    assert [argument.name for argument in spec.arguments] == ["n", "kind", "title"]
    assert (spec.end_of_options, spec.repeatable, spec.reply) == (True, True, False)


def test_the_defaults_are_those_of_the_design():
    think = specification.read(claude(mcp_servers=["mail"], tools=["Read"]))
    greet = specification.read(cli())

    assert (think.runner, think.mode, think.timeout) == ("claude", "process", 1800.0)
    assert greet.timeout == 30.0
    assert (greet.reply, greet.repeatable, greet.end_of_options, greet.files) == (
        True, False, False, False
    )  # fmt: skip


def test_the_published_schema_is_itself_valid_and_allows_what_we_allow():
    published = schema.published()

    Draft202012Validator.check_schema(published)
    assert schema.problems(cli()) == []
    assert schema.problems(claude()) == []


def test_checking_a_schema_fetches_nothing():
    document = cli(output_schema={"$ref": "http://127.0.0.1:9/never"})

    with pytest.raises(DocumentInvalid, match="not a local reference"):
        specification.read(document)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: a\nname: b\n", "'name' stands twice"),
        ("a: {b: 1, b: 2}\n", "'b' stands twice"),
        ("a: &x 1\nb: *x\n", "anchor"),
        ("a: !!python/object:os.system x\n", "tag"),
        ("a: !!int '5'\n", "tag"),
        ("a: 1\n---\nb: 2\n", "single document"),
        ("- a\n", "not one mapping"),
        ("1: a\n", "is not text"),
        ("a: [\n", "expected"),
        ("", "not one mapping"),
        ("<<: {a: 1}\n", "'<<'"),
    ],
)
def test_yaml_is_read_strictly(text, reason):
    if reason == "'<<'":
        assert reading.read_text(text.encode()) == {"<<": {"a": 1}}
        return
    with pytest.raises(DocumentUnreadable, match=reason):
        reading.read_text(text.encode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('{"a": {"b": 1, "b": 1}}', "'b' stands twice"),
        ('{"a": NaN}', "not a JSON number"),
        ("[1]", "not one mapping"),
        ("{", "Expecting"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ('{"a": "\\u0000"}', "NUL"),
        ('{"a\\ud800": 1}', "half a character"),
    ],
)
def test_json_is_read_strictly(text, reason):
    with pytest.raises(DocumentUnreadable, match=reason):
        reading.read_text(text.encode(), json_form=True)


def test_a_file_of_another_encoding_or_too_deep_is_unreadable():
    with pytest.raises(DocumentUnreadable, match="UTF-8"):
        reading.read_text(b"name: \xff\n")
    with pytest.raises(DocumentUnreadable):
        reading.read_text(b'{"a":' + b"[" * 100_000, json_form=True)
    with pytest.raises(DocumentUnreadable):
        reading.read_text(b"a: " + b"[" * 5_000)


@pytest.mark.fault("sister-36")
def test_yaml_has_the_types_of_json():
    read = reading.read_text(
        b"a: yes\nb: on\nc: 0777\nd: 1_000\ne: 2027-01-01\nf: '500'\ng: 10.5\nh: true\ni: 500\n"
        b"j: 12:30\nk: ~\nl: .inf\n"
    )

    assert read == {
        "a": "yes", "b": "on", "c": "0777", "d": "1_000", "e": "2027-01-01", "f": "500",
        "g": 10.5, "h": True, "i": 500, "j": "12:30", "k": None, "l": ".inf",
    }  # fmt: skip


def test_a_signature_replaces_an_earlier_one_and_comments_stay():
    text = "# say hello\nname: greet  # why\nsignature: |\n  old\n\n  lines\nserial: 1\n"

    signed = reading.with_signature(text, "-----BEGIN\n\nnew\n-----END\n", json_form=False)

    assert signed.startswith("# say hello\nname: greet  # why\nserial: 1\n")
    document, signature = reading.split_signature(reading.read_text(signed.encode()))
    assert document == {"name": "greet", "serial": 1}
    assert signature == "-----BEGIN\n\nnew\n-----END"


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@rounds(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*schema.published()["properties"], "odd"]), plain, max_size=8)
)
def test_any_mapping_is_read_or_refused_with_a_reason(document):
    try:
        specification.read({**cli(), **document})
    except DocumentInvalid as refusal:
        assert refusal.detail


@rounds(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.booleans())
def test_any_bytes_are_a_mapping_or_unreadable(content, json_form):
    try:
        assert isinstance(reading.read_text(content, json_form=json_form), dict)
    except DocumentUnreadable as refusal:
        assert refusal.detail


@pytest.mark.fault("sister-48", "sister-49")
def test_a_parent_is_not_inside_a_write_set_and_one_path_has_one_spelling():
    assert write_sets.covers("docs/a", "docs/a/b.md")
    assert not write_sets.covers("docs/a", "docs")
    assert not write_sets.covers("docs/a", "docs/ab")
    for path in ("a//b", "a/./b", "a/", "./a", "..", "a\\b", ""):
        with pytest.raises(InvalidInput):
            write_sets.check_path(path)


@pytest.mark.fault("W16")
def test_sets_without_a_project_never_meet():
    assert write_sets.scoped("", ["a"]) == []
    assert not write_sets.overlap(write_sets.scoped("x", ["a"]), write_sets.scoped("y", ["a"]))
    assert write_sets.overlap(write_sets.scoped("x", ["a"]), write_sets.scoped("x", ["a/b"]))


def test_the_published_schema_is_json_that_anybody_can_read():
    assert json.loads(schema.SCHEMA_FILE.read_text())["title"].startswith("Countersign command")

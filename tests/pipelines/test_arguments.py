"""Arguments are data: checked, never converted, and never able to become an option."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from pipelines import arguments, specification
from pipelines.exceptions import ArgumentInvalid
from pipelines.types import CommandSpec
from tests.pipelines.factories import cli


def spec(*args: dict, **fields: object) -> CommandSpec:
    return specification.read(cli(args=list(args), **fields))


def arg(name: str = "a", type: str = "string", **fields: object) -> dict:
    return {"name": name, "type": type, **fields}


@pytest.mark.fault("sister-36")
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (arg(type="integer"), "500"),
        (arg(type="integer"), 10.5),
        (arg(type="integer"), 10.0),
        (arg(type="integer"), True),
        (arg(type="integer"), None),
        (arg(type="number"), "1"),
        (arg(type="number"), float("nan")),
        (arg(type="number"), float("inf")),
        (arg(type="number"), False),
        (arg(type="boolean"), "true"),
        (arg(type="boolean"), 1),
        (arg(type="string"), 5),
        (arg(type="string"), ["x"]),
        (arg(type="string", max_length=3), "four"),
        (arg(type="enum", enum=["a", "b"]), "c"),
        (arg(type="enum", enum=["a", "b"]), ["a"]),
        (arg(), "a\0b"),
        (arg(), "\ud800"),
        (arg(), "x" * 131_072),
        (arg(position=1), "-rf"),
        (arg(position=1), "--output=x"),
        (arg(type="integer", position=1), -5),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_and_not_converted(declared, value):
    with pytest.raises(ArgumentInvalid) as refusal:
        arguments.check(spec(declared), {"a": value})

    assert refusal.value.field == "a"


@pytest.mark.invariant(14)
@pytest.mark.parametrize(
    ("declared", "value", "word"),
    [
        (arg(type="integer"), 500, "--a=500"),
        (arg(type="integer"), -5, "--a=-5"),
        (arg(type="number"), 10.5, "--a=10.5"),
        (arg(type="boolean"), True, "--a=true"),
        (arg(type="enum", enum=["x"]), "x", "--a=x"),
        (arg(), "", "--a="),
        (arg(), '"quoted" $(x) `y` ; | & *', '--a="quoted" $(x) `y` ; | & *'),
        (arg(position=0), "plain", "plain"),
    ],
)
@pytest.mark.fault("sister-45")
def test_a_value_of_its_type_travels_as_one_element(declared, value, word):
    assert arguments.layout(spec(declared), {"a": value}) == [word]


def test_unknown_and_missing_arguments_are_refused():
    declared = spec(arg("a", required=True), arg("b"))

    for given_args, field in (({}, "a"), ({"a": "x", "c": "y"}, "c"), ({"A": "x"}, "A")):
        with pytest.raises(ArgumentInvalid) as refusal:
            arguments.check(declared, given_args)
        assert refusal.value.field == field


@pytest.mark.invariant(14)
@pytest.mark.fault("exec-04")
def test_an_abbreviated_option_is_an_unknown_argument():
    declared = spec(arg("upload-pack"))

    with pytest.raises(ArgumentInvalid, match="no argument 'upload-p'"):
        arguments.check(declared, {"upload-p": "sh"})


def test_the_order_is_named_then_separator_then_positional():
    declared = spec(
        arg("second", position=5), arg("flag"), arg("first", position=2), end_of_options=True
    )
    given_args = {"second": "-b", "first": "--a", "flag": "-x"}

    assert arguments.layout(declared, arguments.check(declared, given_args)) == [
        "--flag=-x", "--", "--a", "-b"
    ]  # fmt: skip


@pytest.mark.invariant(14)
@pytest.mark.fault("exec-02", "W19")
def test_what_comes_from_the_pipe_is_checked_when_it_runs():
    declared = spec(arg("title", position=1, required=True, from_pipe="/data/items/0/na~1me"))
    pipe = {"data": {"items": [{"na/me": "report.pdf"}]}, "files": []}

    assert arguments.complete(declared, {}, pipe) == {"title": "report.pdf"}
    for value in ("--output=x", "-", 5, None, "a\0b"):
        pipe["data"]["items"][0]["na/me"] = value
        with pytest.raises(ArgumentInvalid):
            arguments.complete(declared, {}, pipe)
    with pytest.raises(ArgumentInvalid, match="has nothing at"):
        arguments.complete(declared, {}, {"data": "text", "files": []})


def test_a_plan_may_not_give_what_comes_from_the_pipe():
    with pytest.raises(ArgumentInvalid, match="taken from the pipe"):
        arguments.check(spec(arg(from_pipe="/data")), {"a": "x"})


@pytest.mark.parametrize("pointer", ["/data/01", "/data/-1", "/data/9", "/data/x", "/nothing"])
def test_a_pointer_to_nothing_leaves_an_optional_argument_out(pointer):
    declared = spec(arg(from_pipe=pointer))

    assert arguments.complete(declared, {}, {"data": ["x"], "files": []}) == {}


@pytest.mark.invariant(14)
@pytest.mark.fault("W19", "exec-02")
@rounds(max_examples=80, deadline=None)
@given(st.text(), st.text(), st.booleans())
def test_no_text_becomes_an_option(named, placed, end_of_options):
    declared = spec(arg("a"), arg("b", position=1), end_of_options=end_of_options)
    try:
        checked = arguments.check(declared, {"a": named, "b": placed})
    except ArgumentInvalid:
        return
    words = arguments.layout(declared, checked)

    options = words[: words.index("--")] if end_of_options else words
    assert [word for word in options if word.startswith("-")] == [f"--a={named}"]
    assert words[-1] == placed

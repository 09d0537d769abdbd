"""A mission's documents: our own are readable by our own decoder, a worker's are exactly right."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import decoding, mission_documents, write_sets
from pipelines.decoding import Place
from pipelines.exceptions import ContractInvalid
from pipelines.mission_documents import Contract, Kind, Success
from pipelines.types import Budget, DocumentRule


def contract(**changes: Any) -> Contract:
    """A contract that passes, until a test changes it."""
    fields: dict[str, Any] = {
        "id": "0b8e8c1e-0000-4000-8000-000000000001",
        "ticket": "pipeline-1",
        "kind": Kind.COMMAND,
        "attempt": 1,
        "command": "publish",
        "digest": "a" * 64,
        "task": "Publish it.",
        "args": {"target": "site"},
        "pipeline_output": {"data": {"text": "hello"}, "files": []},
        "directory": "/srv/pipelines/1",
        "workplace": "/srv/projects/web",
        "project": "web",
        "write_set": ("site",),
        "budget": Budget(rounds=2, max_usd=1.5),
        "timeout": 60.0,
        "success": Success("text", "process", files=False),
        "worker": "claude",
        "evaluator": "system",
        "evaluator_digest": "b" * 64,
    }
    return Contract(**fields | changes)


def result(**changes: Any) -> dict[str, Any]:
    """A result that passes, until a test changes it; `...` leaves a key out."""
    document = {"verdict": "pass", "confidence": 1, "prose": "Done.", "output": "done", **changes}
    return {key: value for key, value in document.items() if value is not ...}


REFLECTION = {"converging": True, "signals": ["a"], "recommendation": "continue", "reason": "so"}


def refusal(document: Any, **changes: Any) -> tuple[str | None, str | None]:
    """The place and the rule by which a result is refused."""
    with pytest.raises(ContractInvalid) as refused:
        mission_documents.read_result(document, contract(**changes))
    return refused.value.field, refused.value.rule


# --- The contract ---------------------------------------------------------------------------------

_plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_numbers = (
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(-0.0) | st.just(1e16)
)
json_values = st.recursive(
    st.none() | st.booleans() | _numbers | _plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_plain, inner, max_size=4),
    max_leaves=12,
)
_segments = st.text("abc.-_ é", min_size=1, max_size=6).filter(lambda s: s not in (".", ".."))
_paths = st.lists(_segments, min_size=1, max_size=4).map("/".join).filter(str.strip)


@pytest.mark.fault("sister-1")
@settings(max_examples=40, deadline=None)
@given(
    args=st.dictionaries(_plain, json_values, max_size=4),
    pipe=json_values,
    write_set=st.lists(_paths, max_size=4, unique=True),
    schema=st.none() | st.just("text") | st.dictionaries(_plain, json_values, max_size=3),
    rounds=st.integers(1, 100),
)
def test_whatever_contract_we_write_our_own_decoder_reads_back(
    args: Any, pipe: Any, write_set: list[str], schema: Any, rounds: int
) -> None:
    written = mission_documents.write_contract(
        contract(
            args=args,
            pipeline_output=pipe,
            write_set=tuple(write_set),
            budget=Budget(rounds=rounds),
            success=Success(schema, "process", files=False),
        )
    )
    kept = json.loads(json.dumps(written))
    read = mission_documents.read_contract(kept)
    assert mission_documents.write_contract(read) == kept
    assert mission_documents.digest(kept) == mission_documents.digest(written)


@pytest.mark.fault("sister-1")
@pytest.mark.parametrize("path", [(), ("inputs",), ("budget",), ("success",)])
def test_a_contract_with_one_key_too_many_or_too_few_is_refused_by_its_place(
    path: tuple[str, ...],
) -> None:
    place = ".".join(("$", *path))
    for name in _at(mission_documents.write_contract(contract()), path):
        document = mission_documents.write_contract(contract())
        del _at(document, path)[name]
        _refused_contract(document, f"{place}.{name}", DocumentRule.MISSING_KEY)
    document = mission_documents.write_contract(contract())
    _at(document, path)["extra"] = 1
    _refused_contract(document, f"{place}.extra", DocumentRule.UNKNOWN_KEY)


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def _refused_contract(document: Any, place: str, rule: DocumentRule) -> None:
    with pytest.raises(ContractInvalid) as refused:
        mission_documents.read_contract(document)
    assert (refused.value.field, refused.value.rule) == (place, rule)


@pytest.mark.fault("sister-50")
def test_no_document_of_a_mission_is_read_as_another() -> None:
    written = mission_documents.write_contract(contract())
    assert mission_documents.read_contract(written) == contract()
    for other in (REFLECTION, result(), {}, [], None, "mission/1"):
        with pytest.raises(ContractInvalid):
            mission_documents.read_contract(other)
    for other in (written, result()):
        with pytest.raises(ContractInvalid):
            mission_documents.read_reflection(other)
    for other in (written, REFLECTION):
        assert refusal(other)[0] == "$." + next(iter(other))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"attempt": 0}, "$.attempt"),
        ({"attempt": True}, "$.attempt"),
        ({"kind": "reflection"}, "$.kind"),
        ({"schema": "mission/2"}, "$.schema"),
        ({"write_set": ["a", "b/../c"]}, "$.write_set[1]"),
        ({"write_set": ["a", "a"]}, "$.write_set[1]"),
        ({"write_set": "a"}, "$.write_set"),
        ({"worker": " "}, "$.worker"),
        ({"task": "x\0y"}, "$.task"),
    ],
)
def test_a_contract_is_read_exactly(changes: dict[str, Any], place: str) -> None:
    document = {**mission_documents.write_contract(contract()), **changes}
    with pytest.raises(ContractInvalid) as refused:
        mission_documents.read_contract(document)
    assert refused.value.field == place


# --- A worker's result ----------------------------------------------------------------------------


def test_a_result_that_is_exactly_right_is_read() -> None:
    read = mission_documents.read_result(
        result(
            files_changed=["site", "site/a b/ü.html"],
            open_questions=["why?"],
            reflection=REFLECTION,
        ),
        contract(),
    )
    assert read.files_changed == ("site", "site/a b/ü.html")
    assert read.reflection is not None and read.reflection.recommendation == "continue"
    assert read.confidence == 1.0


@pytest.mark.parametrize(
    ("changes", "place", "rule"),
    [
        ({"verdict": ...}, "$.verdict", "missing-key"),
        ({"verdict": "passed"}, "$.verdict", "out-of-range"),
        ({"verdict": True}, "$.verdict", "out-of-range"),
        ({"confidence": "0.9"}, "$.confidence", "wrong-type"),
        ({"confidence": True}, "$.confidence", "wrong-type"),
        ({"confidence": float("nan")}, "$.confidence", "out-of-range"),
        ({"confidence": 1.01}, "$.confidence", "out-of-range"),
        ({"confidence": -0.01}, "$.confidence", "out-of-range"),
        ({"confidence": 10**400}, "$.confidence", "out-of-range"),
        ({"prose": ""}, "$.prose", "out-of-range"),
        ({"prose": "x" * 100_001}, "$.prose", "too-large"),
        ({"prose": "é" * 50_001}, "$.prose", "too-large"),
        ({"prose": "a\0b"}, "$.prose", "not-storable"),
        ({"prose": "a\ud800b"}, "$.prose", "not-storable"),
        ({"prose": b"x"}, "$.prose", "wrong-type"),
        ({"output": ...}, "$.output", "missing-key"),
        ({"output": 7}, "$.output", "output-schema"),
        ({"output": "x" * 1_000_001}, "$.output", "too-large"),
        ({"output": "a\0"}, "$.output", "not-storable"),
        ({"output": {"a": [1, {"b c": "\0"}]}}, '$.output.a[1]["b c"]', "not-storable"),
        ({"output": {"\0": 1}}, "$.output", "not-storable"),
        ({"output": [float("inf")]}, "$.output[0]", "not-storable"),
        ({"output": (1, 2)}, "$.output", "wrong-type"),
        ({"output": {1: 2}}, "$.output", "wrong-type"),
        ({"files": ["a.pdf"]}, "$.files", "files-not-declared"),
        ({"files_changed": "site/a"}, "$.files_changed", "wrong-type"),
        ({"files_changed": ["site/a", 3]}, "$.files_changed[1]", "wrong-type"),
        ({"files_changed": ["site/a"] * 2_001}, "$.files_changed", "too-large"),
        ({"files_changed": ["site/a", "site/a"]}, "$.files_changed[1]", "not-a-plain-path"),
        ({"files_changed": ["site/" + "x" * 1_000]}, "$.files_changed[0]", "too-large"),
        ({"open_questions": ["x" * 2_001]}, "$.open_questions[0]", "too-large"),
        ({"open_questions": ["q"] * 101}, "$.open_questions", "too-large"),
        ({"open_questions": [""]}, "$.open_questions[0]", "out-of-range"),
        ({"reflection": None}, "$.reflection", "wrong-type"),
        ({"reflection": {**REFLECTION, "signals": [1]}}, "$.reflection.signals[0]", "wrong-type"),
        ({"reflection": {**REFLECTION, "round": 2}}, "$.reflection.round", "server-stamped"),
        ({"reflection": {"converging": True}}, "$.reflection.signals", "missing-key"),
        ({"notes": "x"}, "$.notes", "unknown-key"),
        ({"Verdict": "pass"}, "$.Verdict", "unknown-key"),
        ({"a.b\n": 1}, '$["a.b\\n"]', "unknown-key"),
    ],
)
def test_a_result_that_is_not_exactly_right_is_refused_by_its_place_and_rule(
    changes: dict[str, Any], place: str, rule: str
) -> None:
    assert refusal(result(**changes)) == (place, rule)


@pytest.mark.parametrize("name", sorted(mission_documents.STAMPED))
def test_what_the_server_stamps_cannot_be_given(name: str) -> None:
    assert refusal(result(**{name: "mine"})) == (f"$.{name}", "server-stamped")
    assert "set by the server" in _detail(result(**{name: "mine"}))


def _detail(document: Any) -> str:
    with pytest.raises(ContractInvalid) as refused:
        mission_documents.read_result(document, contract())
    return refused.value.detail


@pytest.mark.parametrize("document", [None, [], "pass", 1, [result()]])
def test_what_is_no_object_is_no_result(document: Any) -> None:
    assert refusal(document) == ("$", "wrong-type")


def test_nesting_is_bounded_by_place_and_without_recursion() -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    place, rule = refusal(result(output=deep))
    assert rule == "too-large"
    assert place == "$.output" + "[0]" * 65


def test_a_reflection_is_required_where_each_round_is_looked_back_at() -> None:
    reflective = Budget(reflection_after_each=True)
    assert refusal(result(), budget=reflective) == ("$.reflection", "reflection-required")
    read = mission_documents.read_result(result(reflection=REFLECTION), contract(budget=reflective))
    assert read.reflection is not None


_SCHEMA = {
    "type": "object",
    "required": ["title"],
    "properties": {"title": {"type": "string", "maxLength": 5}},
}


def test_an_output_is_held_against_the_commands_schema_where_the_round_passed() -> None:
    typed = {"success": Success(_SCHEMA, "process", files=False)}
    mission_documents.read_result(result(output={"title": "ok"}), contract(**typed))
    for wrong in ({"title": "too long"}, {}, None, "text", {"title": 1}):
        assert refusal(result(output=wrong), **typed) == ("$.output", "output-schema")
    failed = mission_documents.read_result(
        result(verdict="fail", output={"half": "done"}), contract(**typed)
    )
    assert failed.output == {"half": "done"}
    assert refusal(result(output=..., verdict="pass"), **typed) == ("$.output", "missing-key")


def test_a_command_that_keeps_the_pipe_needs_no_output() -> None:
    keeps = contract(success=Success(None, "passthrough", files=False))
    assert mission_documents.read_result(result(output=...), keeps).output is None


@pytest.mark.fault("sister-48", "sister-49")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("src", "outside-write-set"),  # the parent of the write set
        ("src/apple", "outside-write-set"),  # shares characters, not a segment
        ("src/ap", "outside-write-set"),
        ("other", "outside-write-set"),
        ("src//app", "not-a-plain-path"),
        ("src/./app", "not-a-plain-path"),
        ("src/app/", "not-a-plain-path"),
        ("./src/app", "not-a-plain-path"),
        ("src/app/../app/x", "not-a-plain-path"),
        ("/src/app", "not-a-plain-path"),
        ("src/app\\x", "not-a-plain-path"),
        ("..", "not-a-plain-path"),
    ],
)
def test_a_changed_path_lies_inside_the_write_set_segment_by_segment(path: str, rule: str) -> None:
    assert refusal(result(files_changed=["src/app/a", path]), write_set=("src/app",)) == (
        "$.files_changed[1]",
        rule,
    )
    mission_documents.read_result(
        result(files_changed=["src/app", "src/app/a", "src/app/apple/x"]),
        contract(write_set=("src/app",)),
    )


@settings(max_examples=80, deadline=None)
@given(entry=_paths, path=_paths)
def test_containment_is_by_whole_segments_and_one_sided(entry: str, path: str) -> None:
    inside = write_sets.covers(entry, path)
    assert inside == (path.split("/")[: entry.count("/") + 1] == entry.split("/"))
    if inside and entry != path:
        assert not write_sets.covers(path, entry)
    assert contract(write_set=(entry,)).permits(path) == inside
    both = write_sets.covers(entry, path) or write_sets.covers(path, entry)
    assert write_sets.overlap([entry], [path]) == write_sets.overlap([path], [entry]) == both


@pytest.mark.fault("W14")
@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("src/.git/hooks/pre-commit", False),
        ("src/lib/.git", False),
        ("named/.git/config", True),
        ("named/.git/modules/a/.git", False),
        ("named/other", False),
        ("src/.github/x", True),
        ("src/a.git/x", True),
    ],
)
def test_a_repository_is_in_a_write_set_only_where_that_names_it(path: str, inside: bool) -> None:
    assert contract(write_set=("src", "named/.git")).permits(path) == inside


def test_files_that_a_command_returns_may_change_in_the_pipelines_own_directory() -> None:
    returns = Success(_SCHEMA, "process", files=True)
    here = contract(success=returns, write_set=(), workplace="/srv/pipelines/1")
    read = mission_documents.read_result(
        result(output={"title": "ok"}, files=["chart.png"], files_changed=["chart.png"]), here
    )
    assert read.files == ("chart.png",)
    assert here.permits("chart.png", read.files)
    assert not here.permits("other.png", read.files)
    elsewhere = dataclasses.replace(here, workplace="/srv/projects/web")
    assert not elsewhere.permits("chart.png", read.files)


# --- The boundary ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"verdict": "fail", "verdict": "pass"}', "not-json"),
        ('{"a": {"b": 1, "b": 2}}', "not-json"),
        ('{"confidence": NaN}', "not-json"),
        ('{"confidence": -Infinity}', "not-json"),
        ('{"a": 1} trailing', "not-json"),
        ("", "not-json"),
        ("{'a': 1}", "not-json"),
        ('{"n": ' + "9" * 5_000 + "}", "not-json"),
        (b'\xff{"a": 1}', "not-json"),
        ("[" * 100_000, "too-large"),
        ('{"a": ' * 100_000, "too-large"),
        ("[1]", "wrong-type"),
        ("null", "wrong-type"),
        ('{"a": "' + "x" * decoding.MAX_DOCUMENT_BYTES + '"}', "too-large"),
    ],
)
def test_the_boundary_takes_one_json_object_and_nothing_else(text: str | bytes, rule: str) -> None:
    with pytest.raises(ContractInvalid) as refused:
        decoding.parse(text)
    assert (refused.value.field, refused.value.rule) == ("$", rule)


def test_the_boundary_takes_an_object_as_text_or_bytes() -> None:
    assert decoding.parse('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert decoding.parse('{"é": "\\ud83d\\ude00"}'.encode()) == {"é": "😀"}


def test_a_place_is_only_spelled_out_for_a_refusal() -> None:
    """Long keys around many values must not cost a path for each of them."""
    value: Any = [0] * 50_000
    for number in range(50):
        value = {f"{number}-" + "k" * 500: value}
    assert Place(value).json() is value
    value["\0"] = 1
    with pytest.raises(ContractInvalid):
        Place(value).json()

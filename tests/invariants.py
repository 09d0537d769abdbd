"""docs/invariants.md: what must always hold, and the tests that hold it.

A test carries `@pytest.mark.invariant(1, 24)`: the numbers of the sentences below. A marker
anywhere else in a module stands for the whole module.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.documents import marks

_HEAD = """# Invariants, and the tests that hold them

Twenty-five sentences that must stay true whatever arrives and whatever dies. The tests are found by
their marker (`@pytest.mark.invariant`); this page is generated from them by `make docs`. Many have
a control that takes the guard away and sees the fault happen. What a sentence asks beyond these
tests stands under *not held yet*. All of them are short forms; of long ones, with thousands of
mails and hundreds of kills, `make soak` has hardly any so far.
"""

#: Number → name and sentence.
SENTENCES: dict[int, tuple[str, str]] = {
    1: (
        "No loss",
        "Wherever a poller is killed, each mail of the server ends up stored, unchanged.",
    ),
    2: (
        "No double",
        "A mail that is seen again, in a new folder generation or from another place, is neither a "
        "second message nor a second pipeline.",
    ),
    3: (
        "No poison",
        "A message that cannot be read is set aside with its bytes and holds up no other.",
    ),
    4: (
        "Bounded",
        "Reading a message costs time and memory in proportion to its size, and never fails.",
    ),
    5: (
        "Alive",
        "A server that hangs, breaks off or goes away is one alert; mail follows soon after.",
    ),
    6: (
        "Raw is truth",
        "Every verdict can be made again from the stored bytes; a new one erases no old one.",
    ),
    7: (
        "Exact signer",
        "Only mail signed by the key pinned for its own sender is verified; without pins, none.",
    ),
    8: (
        "Bad key states",
        "Whatever is wrong with key, signature or GnuPG itself gives its reason and never a pass.",
    ),
    9: (
        "One identity",
        "A From that does not name exactly one address gives its sender no permission.",
    ),
    10: (
        "Both gates",
        "Trust and permission are both asked, by one written table, with one answer everywhere.",
    ),
    11: (
        "Trust is not text",
        "Nothing that a sender can write outside the signature moves trust or permission.",
    ),
    12: (
        "Replay",
        "Signed bytes start work once, whatever wraps them and wherever they turn up again.",
    ),
    13: (
        "Rollback and freeze",
        "An older command, or one whose owner key has ended, neither loads nor runs, not even in a "
        "worker that is already up.",
    ),
    14: ("argv only", "There is no shell, and no text from mail can become an option."),
    15: (
        "Confined without hooks",
        "What an agent session may reach is limited by the system, not by its own manners.",
    ),
    16: (
        "No survivors",
        "When a stage, its worker or GnuPG ends in whatever way, nothing it started lives on.",
    ),
    17: (
        "Injection changes nothing",
        "Orders planted in a mail move neither recipients nor commands nor files.",
    ),
    18: ("Approved is sent", "Only the bytes and fields that were approved can leave."),
    19: (
        "At most once",
        "One intent makes at most one contact; without proof of its outcome it says unknown.",
    ),
    20: (
        "Unknown stays",
        "Looking again may add an observation to an unknown act, and never a send.",
    ),
    21: ("GET is safe", "Opening a page or following a link changes nothing."),
    22: (
        "No loops",
        "Programs that answer each other by mail come to rest, and bounces get no answer.",
    ),
    23: ("No header injection", "No text from anywhere can end a header of what we send."),
    24: (
        "No effect without a record",
        "What cannot be recorded does not happen, and the record says why each effect was allowed.",
    ),
    25: (
        "Feed is a hint",
        "A feed may drop, lag or break; the page shows the gap and ends equal to the database.",
    ),
}

#: Number → what its sentence asks beyond the tests, in plain words.
OPEN: dict[int, str] = {
    6: "There is one version of the parser so far; reading the whole store again with a second one "
    "comes with it. Its number is kept with each message, and each verdict's with the verdict.",
    9: "The suite runs on one Python at a time; the reading of From uses none of its parsers.",
    15: "Agent sessions come with a later version. Nothing of theirs runs until then.",
    17: "No model plans or writes yet, so there is none that could obey. What is held: planted "
    "text changes neither the verdict nor the text that rules see.",
    20: "Only SMTP acts exist, and an unknown one is not looked up again at all; looking it up "
    "comes with the later kinds of acts.",
    21: "There are no notices with links yet; every page and every act of the console is asked.",
    25: "Receipts and inboxes of agents come with a later version; held is the feed of events.",
}


def page() -> str:
    """The page as it should be."""
    tests = held()
    return "\n".join([_HEAD, *(_section(number, tests[number]) for number in SENTENCES)])


def held() -> dict[int, list[str]]:
    """The tests of each invariant, sorted by name."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for where, tree in marks.marked("invariant"):
        for number, test in _marked(where, tree):
            found[number].add(test)
    return {number: sorted(found[number]) for number in {*SENTENCES, *found}}


def _section(number: int, tests: list[str]) -> str:
    name, sentence = SENTENCES[number]
    lines = [f"## {number}. {name}", "", sentence, ""]
    lines += [f"- `{test}`" for test in tests]
    if number in OPEN:
        lines += [""] if tests else []
        lines += [f"*Not held yet:* {OPEN[number]}"]
    return "\n".join(lines) + "\n"


def _marked(where: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    in_decorators: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for call in (c for one in node.decorator_list for c in marks.calls(one, "invariant")):
                in_decorators.add(id(call))
                yield from ((number, f"{where}::{node.name}") for number in _numbers(call))
    for call in marks.calls(tree, "invariant"):
        if id(call) not in in_decorators:
            yield from ((number, where) for number in _numbers(call))


def _numbers(call: ast.Call) -> Iterator[int]:
    for argument in call.args:
        yield int(ast.literal_eval(argument))

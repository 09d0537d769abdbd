"""Orders in mail: exactly one verb with one digest, or a named fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail import orders
from mail.orders import Order
from mail.types import OrderFault, Verb

A = "a1" * 32
B = "b2" * 32
QUOTED = f"""\
On Tue, 1 Dec 2026 at 09:00, Ada <ada@example.net> wrote:
> To answer by mail:
>
>     approve {A}
>     reject {A} and why
"""


@pytest.mark.parametrize(
    "text",
    [
        f"approve {A}",
        f"approve {A}\r\n",
        f"\n\n  approve {A}   \n\n",
        f"Approve {A.upper()}",
        f"approve\n{A}",
        f"approve {A}\n-- \nOlga\nSent from somewhere",
        f"approve {A}\n--\nOlga",
        f"approve {A}\n\n{QUOTED}",
        f"{QUOTED}\napprove {A}\n",
        f"approve\u00a0{A}",
        f"approve {A}\n\n-----Original Message-----\nFrom: Ada\n\napprove {A}\nreject {A} why\n",
    ],
)
def test_one_order_is_read_whatever_a_mail_program_puts_around_it(text: str) -> None:
    assert orders.read(text) == Order(Verb.APPROVE, A)


def test_a_no_carries_its_reason_over_folded_lines() -> None:
    text = f"reject {A} the price is\nwrong, ask\n  again\n-- \nOlga\n"
    assert orders.read(text) == Order(Verb.REJECT, A, "the price is wrong, ask again")


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.APPROVE])
def test_every_other_word_may_say_why(verb: Verb) -> None:
    assert orders.read(f"{verb} {A}") == Order(verb, A)
    assert orders.read(f"{verb} {A} because") == Order(verb, A, "because")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, OrderFault.NO_ORDER),
        ("", OrderFault.NO_ORDER),
        ("Looks good, send it.", OrderFault.NO_ORDER),
        ("approve", OrderFault.NO_ORDER),
        (f"approve {A[:63]}", OrderFault.NO_ORDER),
        (f"approve {A}0", OrderFault.NO_ORDER),
        (f"approved {A}", OrderFault.NO_ORDER),
        (f"yes {A}", OrderFault.NO_ORDER),
        (A, OrderFault.NO_ORDER),
        (QUOTED, OrderFault.NO_ORDER),
        (f"approve {A}\napprove {A}", OrderFault.SEVERAL_ORDERS),
        (f"approve {A}\napprove {B}", OrderFault.SEVERAL_ORDERS),
        (f"approve {A}\nreject {B} no", OrderFault.SEVERAL_ORDERS),
        (f"reject {A} rather approve {B}", OrderFault.SEVERAL_ORDERS),
        (f"reject {A} instead of {B}", OrderFault.SEVERAL_ORDERS),
        (f"approve {A} {B}", OrderFault.SEVERAL_ORDERS),
        (f"    approve {A}\n    reject {A} and why\n", OrderFault.SEVERAL_ORDERS),
        (f"Please do not\napprove {A}", OrderFault.UNCLEAR_ORDER),
        (f"approve {A}\nbut correct the date", OrderFault.UNCLEAR_ORDER),
        (f"approve {A}.", OrderFault.UNCLEAR_ORDER),
        (f"approve: {A}", OrderFault.UNCLEAR_ORDER),
        (f'"approve {A}"', OrderFault.UNCLEAR_ORDER),
        (f"Hello,\n\napprove {A}\n\nRegards", OrderFault.UNCLEAR_ORDER),
        (f"| approve {A}", OrderFault.UNCLEAR_ORDER),
        (f"approve \u200b{A}", OrderFault.UNCLEAR_ORDER),
    ],
)
def test_whatever_is_not_exactly_one_order_is_a_named_fault(
    text: str | None, fault: OrderFault
) -> None:
    assert orders.read(text) == fault


@given(before=st.text(max_size=40), after=st.text(max_size=40))
def test_no_words_around_a_yes_leave_it_a_yes(before: str, after: str) -> None:
    """Only white space, quotes and signatures may stand beside it."""
    found = orders.read(f"{before}approve {A}{after}")
    if isinstance(found, Order):
        assert found == Order(Verb.APPROVE, A)
        assert not before.split() or _is_cut(before)


def _is_cut(text: str) -> bool:
    """Whether the text reader itself takes these words for a quote: then they are no words."""
    return orders.quotes.new_text(f"{text}\nx") in ("x", None)


def test_a_mail_that_speaks_of_an_order_is_noticed_wherever_it_does() -> None:
    assert orders.mentioned(f"Re: approve {A}", "")
    assert orders.mentioned("Re: x", f"I would approve {A} if I could")
    assert orders.mentioned("", None, f"approve {A}")
    assert orders.digest_mentioned("", f"please approve {A}") == A


def test_a_quoted_order_makes_no_mail_an_answer() -> None:
    assert not orders.mentioned("Re: 1 draft waits", f"@ada please factor 91\n\n{QUOTED}")
    assert not orders.mentioned("A digest", f"The sum is {A}.")
    assert orders.digest_mentioned("A digest", f"The sum is {A}.") == ""

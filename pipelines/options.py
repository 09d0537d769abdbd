"""Which options a listed program may be given: the ones on its list, spelled out (invariant 14).

Options of common programs run other programs, or read and write files (`git --upload-pack`,
`tar -I`, `ssh -oProxyCommand`, `find -exec`). A program of `safe_options.json` gets the options of
its list and no other, in `fixed_args` and as named arguments alike: whole long names (an
abbreviation is another word), each letter of a bundle by itself. Where a program reads code (a
script, a filter, a program to run), the code is what the owner signed, and no word from mail or
from the pipe. A program that is not listed takes what the owner signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from guards.exceptions import CountersignError
from guards.process import resolve_binary
from pipelines.exceptions import ArgumentInvalid, OptionNotAllowed
from pipelines.safe_lists import Program, of_name
from pipelines.types import ArgumentSpec, CommandSpec

#: Spellings of standard input, which is the pipe and so never code.
_STANDARD_INPUT = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})

#: How many programs may stand inside each other (`env timeout 5 nice …`).
_MAX_DEPTH = 4

#: Takes a place inside the words and says where it stands in the document.
Place = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class _Use:
    """One program with the words that the owner signed, and how the rest is put behind them."""

    program: Program
    name: str
    words: tuple[str, ...]
    place: Place
    fed: bool = False


@dataclass(slots=True)
class _Scan:
    """What was found in the signed words: plain ones by index, code, an end of options."""

    plain: list[int]
    has_code: bool = False
    ended: bool = False
    inner: int | None = None
    subcommand: int | None = None


def check(spec: CommandSpec) -> None:
    """BinaryNotAllowed, or OptionNotAllowed with the place in the document, unless all may run."""
    for number, step in enumerate(spec.steps):
        prefix = f"steps[{number}]." if "steps" in spec.document else ""

        def place(index: int, prefix: str = prefix) -> str:
            return f"{prefix}fixed_args[{index}]" if index >= 0 else f"{prefix}binary"

        for use in _uses(step.binary, step.fixed_args, place):
            _check_rest(use, spec)


def check_value(spec: CommandSpec, argument: ArgumentSpec, text: str) -> None:
    """ArgumentInvalid where a listed program would take this word for more than data."""
    for step in spec.steps:
        try:
            uses = list(_uses(step.binary, step.fixed_args, lambda index: ""))
        except CountersignError:
            return  # the command as a whole does not run, and says why
        for use in uses:
            _check_word(use, spec, argument, text)


def _check_word(use: _Use, spec: CommandSpec, argument: ArgumentSpec, text: str) -> None:
    program = use.program
    if argument.position is None:
        said = _fault(text, leading=program.value_leading)
    else:
        said = _fault(
            text,
            leading=program.leading if program.ends_options else f"{program.leading}-",
            without=program.without,
            starts=program.starts,
        )
    if said:
        raise ArgumentInvalid(
            f"{argument.name} {said}: {use.name} may be given no such word",
            field=argument.name,
        )


def _fault(
    text: str, *, leading: str, without: Sequence[str] = (), starts: Sequence[str] = ()
) -> str:
    """Why a word could be more than data; "" where it cannot."""
    if text and text[0] in leading:
        return f"begins with {text[0]!r}"
    if starts and not text.startswith(tuple(starts)):
        return f"does not begin with {' or '.join(starts)}"
    return next((f"holds {part!r}" for part in without if part in text), "")


def _uses(
    binary: str, words: Sequence[str], place: Place, *, fed: bool = False, depth: int = 0
) -> Iterator[_Use]:
    """Every listed program that takes part, each with its own words, all of them checked."""
    if depth > _MAX_DEPTH:
        raise OptionNotAllowed("programs that run programs stand too deep", field=place(-1))
    for name, program in _listed(binary):
        use = _Use(program, name, tuple(words), place, fed)
        yield from _of_program(use, depth)


def _of_program(use: _Use, depth: int) -> Iterator[_Use]:
    if use.program.refused:
        raise OptionNotAllowed(f"{use.name}: {use.program.refused}", field=use.place(-1))
    scan = _scan(use)
    if scan.subcommand is not None:
        yield from _of_program(_subcommand(use, scan.subcommand), depth)
        return
    _check_code(use, scan)
    if scan.inner is None:
        yield use
        return
    start = scan.inner
    inner, rest = use.words[start], use.words[start + 1 :]
    if not inner.startswith("/"):
        raise _refusal(use, start, "name the program that it runs by its full path")
    fed = use.fed or use.program.feeds
    if fed and "--" not in rest:
        raise OptionNotAllowed(
            f"{use.name} puts words of the pipe behind those of {inner}: end its options with --",
            field=use.place(start),
        )
    yield from _uses(
        inner, rest, lambda index: use.place(start + 1 + index), fed=fed, depth=depth + 1
    )


def _subcommand(use: _Use, index: int) -> _Use:
    word = use.words[index]
    found = (use.program.subcommands or {}).get(word)
    if found is None:
        raise _refusal(use, index, f"the subcommand {word!r} is not on its list")
    start = index + 1
    return _Use(
        found,
        f"{use.name} {word}",
        use.words[start:],
        lambda at: use.place(start + at) if at >= 0 else use.place(index),
        use.fed,
    )


def _scan(use: _Use) -> _Scan:
    program, words = use.program, use.words
    scan = _Scan([])
    if program.dashed_first and not (words and words[0].startswith("-")):
        raise _refusal(use, 0, "its first word must be an option with its dash")
    index = 0
    while index < len(words):
        word = words[index]
        if scan.ended or not word.startswith("-") or word == "-":
            if _plain(use, scan, index):
                break
            index += 1
        elif word == "--" and not program.single_dash:
            scan.ended = True
            index += 1
        else:
            index += 1 + _option(use, scan, index)
            if scan.has_code and program.stops_at_code:
                scan.plain.extend(range(index, len(words)))
                break
    return scan


def _plain(use: _Use, scan: _Scan, index: int) -> bool:
    """Take one plain word; whether nothing behind it is this program's any more."""
    program, word = use.program, use.words[index]
    if program.assignments and "=" in word:
        return False
    scan.plain.append(index)
    if program.subcommands is not None:
        scan.subcommand = index
        return True
    if program.runs is not None and len(scan.plain) > program.runs:
        scan.inner = index
        return True
    if program.stops_at_word:
        scan.plain.extend(range(index + 1, len(use.words)))
        return True
    return False


def _option(use: _Use, scan: _Scan, index: int) -> int:
    """How many further words an option takes; OptionNotAllowed for one that is not on the list."""
    program, word = use.program, use.words[index]
    if word in program.exact or word in program.flags or word in program.optional:
        return 0
    if _is_count(word) and "-NUMBER" in program.flags:
        return 0
    if word in program.pairs:
        if index + 2 >= len(use.words):
            raise _refusal(use, index, f"the option {word!r} takes two words: sign them with it")
        return 2
    if program.single_dash or word.startswith("--"):
        return _long(use, scan, index)
    return _bundle(use, scan, index)


def _long(use: _Use, scan: _Scan, index: int) -> int:
    program = use.program
    name, equals, value = use.words[index].partition("=")
    if equals and name in program.optional and not program.single_dash:
        return 0
    if name not in program.takes_value or (equals and program.single_dash):
        raise _refusal(use, index, f"the option {name!r} is not on its list")
    return _take_value(use, scan, index, name, value if equals else None)


def _bundle(use: _Use, scan: _Scan, index: int) -> int:
    """`-xzf FILE`: each letter is looked at, until one takes the rest for its value."""
    program, word = use.program, use.words[index]
    for at, letter in enumerate(word[1:], start=2):
        option = f"-{letter}"
        if option in program.takes_value:
            return _take_value(use, scan, index, option, word[at:] or None)
        if option in program.optional:
            return 0
        if option not in program.flags:
            raise _refusal(use, index, f"the option {option!r} is not on its list")
    return 0


def _take_value(use: _Use, scan: _Scan, index: int, option: str, attached: str | None) -> int:
    """The words that the value of an option takes: none where it is attached."""
    if attached is None and index + 1 >= len(use.words):
        raise _refusal(use, index, f"the option {option!r} has no value: sign one with it")
    value = use.words[index + 1] if attached is None else attached
    if attached is None and not use.program.single_dash and value[:1] == "-" and value != "-":
        raise _refusal(use, index + 1, f"write a value that begins with '-' onto {option!r} itself")
    if option in use.program.code:
        if use.program.code_apart and (attached is not None or value.startswith("+")):
            raise _refusal(use, index, f"write the code behind {option!r}, as a word of its own")
        scan.has_code = True
        if value in _STANDARD_INPUT | use.program.reads:
            raise _refusal(use, index, "standard input is the pipe, and never code")
    return 1 if attached is None else 0


def _check_code(use: _Use, scan: _Scan) -> None:
    """The leading plain words are signed code; they are not left to standard input."""
    program = use.program
    if scan.has_code:
        return
    for index in scan.plain[: program.code_words]:
        if use.words[index] in _STANDARD_INPUT | program.reads:
            raise _refusal(use, index, "standard input is the pipe, and never code")
        if program.code_apart and use.words[index].startswith("+"):
            raise _refusal(use, index, f"the option {use.words[index]!r} is not on its list")
    if program.needs_code and len(scan.plain) < program.code_words:
        raise _refusal(use, -1, "without code in fixed_args it would take the pipe for code")


def _check_rest(use: _Use, spec: CommandSpec) -> None:
    """What is put behind the signed words: named arguments, positional ones, words of the pipe."""
    program = use.program
    scan = _scan(use)
    named = [a for a in spec.arguments if a.position is None]
    placed = [a for a in spec.arguments if a.position is not None]
    for argument in named:
        _check_named(use, scan, argument, spec)
    if not placed and not use.fed:
        return
    where = _argument_place(spec, placed[0]) if placed else use.place(-1)
    if not program.mail_words:
        raise OptionNotAllowed(f"{use.name} may be given no words from mail or pipe", field=where)
    if program.subcommands is not None and scan.subcommand is None:
        raise OptionNotAllowed(f"{use.name}: sign the subcommand in fixed_args", field=where)
    if not scan.has_code and len(scan.plain) < program.code_words:
        raise OptionNotAllowed(
            f"{use.name} would take this for code: sign the code in fixed_args", field=where
        )
    if program.runs is not None and scan.inner is None and not use.fed:
        raise OptionNotAllowed(f"{use.name} would take this for a program", field=where)
    limited = program.leading or program.without or program.starts or not program.ends_options
    if use.fed and (limited or not scan.ended):
        raise OptionNotAllowed(f"{use.name} may be given no words of the pipe", field=where)


def _check_named(use: _Use, scan: _Scan, argument: ArgumentSpec, spec: CommandSpec) -> None:
    program, option = use.program, f"--{argument.name}"
    behind = program.stops_at_word and bool(scan.plain)
    if not program.named or behind or (program.stops_at_code and scan.has_code):
        said = f"{use.name} may be given no named arguments"
    elif scan.ended:
        said = f"fixed_args end the options of {use.name} before {option}"
    elif option not in program.values | program.optional:
        said = f"the option {option!r} of {use.name} is not on its list for arguments"
    else:
        return
    raise OptionNotAllowed(said, field=_argument_place(spec, argument))


def _argument_place(spec: CommandSpec, argument: ArgumentSpec) -> str:
    return f"args[{spec.arguments.index(argument)}]"


def _refusal(use: _Use, index: int, reason: str) -> OptionNotAllowed:
    return OptionNotAllowed(f"{use.name}: {reason}", field=use.place(index))


def _is_count(word: str) -> bool:
    return word[1:].isascii() and word[1:].isdigit()


def _listed(binary: str) -> Iterator[tuple[str, Program]]:
    """The lists that hold for a program: by its real name, and by the name it is called by."""
    names = {Path(binary).name, resolve_binary(binary).name}
    found = {key: program for name in sorted(names) for key, program in of_name(name)}
    yield from found.items()

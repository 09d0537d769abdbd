"""Which options a listed program may be given, and what may land where it is code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from guards.exceptions import BinaryNotAllowed
from pipelines import arguments, options, specification
from pipelines.exceptions import ArgumentInvalid, CommandNotRunnable, OptionNotAllowed
from pipelines.models import Command
from pipelines.services import commands, verification
from tests.pipelines.factories import OPERATOR, cli

MUST = (
    *("git", "curl", "wget", "tar", "rsync", "ssh", "scp", "find", "sort", "sed", "awk", "xargs"),
    *("env", "jq", "python3", "sh", "bash", "perl", "zip", "unzip", "less", "vim", "gpg"),
    "sendmail",
)

WORD = {"name": "word", "type": "string", "position": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every program of these tests."""
    directory = tmp_path_factory.mktemp("programs")
    more = ("wc", "timeout", "dash", "mawk", "python3.11", "ed", "sudo", "nice", "sqlite3", "mail",
            "node", "deno", "lua", "tclsh", "guile", "sftp", "tcsh", "zsh-5.9")  # fmt: skip
    for name in (*MUST, "psql", *more):
        (directory / name).write_text("#!/bin/true\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def everything_allowed(made: Path, settings) -> None:
    """They are there and allowed, whatever this machine has."""
    settings.ALLOWED_BINARIES = [str(made)]


@pytest.fixture
def programs(made: Path, tmp_path: Path, settings) -> Path:
    """The same for a test that changes them, or looks beside them."""
    directory = shutil.copytree(made, tmp_path / "programs")
    settings.ALLOWED_BINARIES = [str(directory)]
    return directory


def inside(line: str) -> list[str]:
    """The words of a line; BIN is where programs lie."""
    return line.replace("BIN", settings.ALLOWED_BINARIES[0]).split()


def spec(binary: str, *words: str, args: list[dict[str, Any]] | None = None, **fields: Any):
    document = cli(binary=binary, fixed_args=list(words), **fields)
    return specification.read(document | ({"args": args} if args else {}))


def refusal(binary: str, *words: str, **fields: Any) -> str:
    """Where it is refused."""
    with pytest.raises(OptionNotAllowed) as refused:
        options.check(spec(binary, *words, **fields))
    assert refused.value.rule == "option-not-allowed"
    return refused.value.field or ""


ALLOWED = [
    "git log --oneline -n 5 --since=yesterday HEAD",
    "git log -5 -p -- docs",
    "git -C /srv/tree status --short",
    "git diff --stat HEAD~1",
    "curl -sSfL --max-time 5 --retry=2 https://example.org",
    "curl -d @- https://example.org",
    "wget -nv -q -O - https://example.org",
    "tar -xzf a.tgz --strip-components=1",
    "rsync -avz /srv/a/ /srv/b/",
    "ssh -oBatchMode=yes -p 22 host uptime",
    "scp -q -P 22 a host:b",
    "find . -maxdepth 1 -mtime -7 ( -name *.md -o -size +3k ) -print0",
    "sort -rn -k2 -t, --unique",
    "sed -n -e s/a/b/p -e $!d",
    "awk -F, {print$1}",
    "xargs -0 -n1",
    "xargs -0 BIN/wc -l --",
    "env LANG=C BIN/sort -r",
    "timeout -k 1 5 BIN/git status",
    "jq -r --arg a b .title",
    "jq -nc {t:$ARGS.positional} --args",
    "python3 -I -c print(1) --anything",
    "python3 -m json.tool",
    "python3 /srv/report.py --month",
    "sh -eu /srv/report.sh --month",
    "bash -o pipefail -c true",
    "sh -ec true",
    "node -p 1",
    "deno run --allow-net /srv/report.ts",
    "lua /srv/report.lua",
    "guile -c (display)",
    "perl -lane print$F[0]",
    "zip -rq9 out.zip docs",
    "unzip -l in.zip",
    "less -R -N file",
    "gpg --batch --verify a.sig a",
    "sendmail -oi -f robot@example.org",
    "wc --any-option -x",
    "sqlite3 -readonly -json db.sqlite3 select",
    "psql -At -d house -c select",
]


@pytest.mark.parametrize("line", ALLOWED)
def test_what_is_on_the_list_is_allowed(line: str):
    options.check(spec(*inside(line)))


REFUSED = [
    ("git --exec-path=/tmp log", 0),
    ("git -c core.pager=sh log", 0),
    ("git clone --upload-pack=sh x", 1),
    ("git clone --upload-p=sh x", 1),
    ("git clone -u sh x", 1),
    ("git clone -qush x", 1),
    ("git log --output=/etc/x", 1),
    ("git diff --ext-diff", 1),
    ("git grep -Osh x", 1),
    ("git bisect run sh", 0),
    ("git rebase --exec sh", 0),
    ("curl -K config", 0),
    ("curl --conf x", 0),
    ("curl -sSK config", 0),
    ("curl --unix-socket /run/x", 0),
    ("wget --use-askpass=sh x", 0),
    ("wget -e use_askpass=sh x", 0),
    ("wget -qi list", 0),
    ("tar -xf a.tar --to-command=sh", 2),
    ("tar -tf a -I sh", 2),
    ("tar -tIsh", 0),
    ("tar tf a", 0),
    ("tar", 0),
    ("tar -xf a --checkpoint-act=exec=sh", 2),
    ("tar -xf a --use-comp=sh", 2),
    ("rsync -e sh a b", 0),
    ("rsync -ave sh a b", 0),
    ("rsync --rsh=sh a b", 0),
    ("ssh -oProxyCommand=sh host x", 0),
    ("ssh -o ProxyCommand=sh host x", 0),
    ("ssh -qoProxyCommand=sh host x", 0),
    ("ssh host -oProxyCommand=sh x", 1),
    ("ssh host", -1),
    ("scp -S sh a b", 0),
    ("find . -exec sh ;", 1),
    ("find . -delete", 1),
    ("find . -okdir sh ;", 1),
    ("find . -name x -fprint /etc/x", 3),
    ("sort --compress-program=sh", 0),
    ("sort --compress-prog=sh", 0),
    ("sed -i s/a/b/ f", 0),
    ("sed -f - f", 0),
    ("sed -n", -1),
    ("awk -f /dev/stdin", 0),
    ("awk -l ext x", 0),
    ("xargs -I {} sh -c {}", 0),
    ("xargs BIN/sh -c true", 0),
    ("xargs BIN/wc -l", 0),
    ("xargs BIN/curl -s --", 0),
    ("xargs BIN/jq . --arg -- x", 0),
    ("env -S sh", 0),
    ("env BIN/git -c core.pager=sh log", 1),
    ("env BIN/timeout 5 BIN/sh -s", 3),
    ("timeout 5 BIN/curl -K x", 2),
    ("timeout 5 wc -l", 1),
    ("env PATH=/tmp sort", 1),
    ("jq --rawfile a /etc/passwd .", 0),
    ("jq -rf x .", 0),
    ("jq . --arg a", 1),
    ("python3", -1),
    ("python3 -", 0),
    ("python3 -i x.py", 0),
    ("sh", -1),
    ("sh -s", 0),
    ("bash /dev/stdin", 0),
    ("bash --rcfile x -c true", 0),
    ("sh -ce", 0),
    ("zsh-5.9 -ce", 0),
    ("tcsh -s", 0),
    ("bash -c +x", 0),
    ("bash +x", 0),
    ("node -pe", 0),
    ("node inspect x.js", 0),
    ("python3 -m code", 0),
    ("python3 -mpdb x.py", 0),
    ("node --eval=1", 0),
    ("deno run", 0),
    ("deno repl", 0),
    ("deno run -", 1),
    ("lua -e x=1", 0),
    ("tclsh -e x", 0),
    ("guile -e main", 0),
    ("sftp host", -1),
    ("perl -n", -1),
    ("perl -ni.bak -e 1", 0),
    ("zip -TT sh a", 0),
    ("zip a b -@", 2),
    ("unzip -P x a", 0),
    ("less -k keys f", 0),
    ("vim -c x f", -1),
    ("ed f", -1),
    ("sudo ls", -1),
    ("gpg --photo-viewer=sh --list-keys", 0),
    ("gpg --outp=x --decrypt", 0),
    ("sendmail -C/tmp/x", 0),
    ("sendmail -oQ/tmp", 0),
    ("sort -k", 0),
    ("sqlite3 db.sqlite3", -1),
    ("sqlite3 -init rc db.sqlite3 select", 0),
    ("psql -At house", -1),
    ("psql -c /dev/stdin", 0),
    ("mail -s x bob@example.org", -1),
    ("sort -k -o", 1),
]


@pytest.mark.invariant(14)
@pytest.mark.fault("exec-04")
@pytest.mark.parametrize(("line", "index"), REFUSED)
def test_what_is_not_on_the_list_is_refused_at_its_place(line: str, index: int):
    binary, *words = inside(line)
    place = f"fixed_args[{index}]" if index >= 0 else "binary"
    assert refusal(binary, *words) == place


def test_a_program_inside_another_is_held_against_the_allow_list(programs: Path, tmp_path: Path):
    (tmp_path / "evil").write_text("#!/bin/true\n")
    (tmp_path / "evil").chmod(0o755)
    with pytest.raises(BinaryNotAllowed):
        options.check(spec("env", f"{tmp_path}/evil"))
    with pytest.raises(BinaryNotAllowed):
        options.check(spec(*inside("timeout 5 BIN/../evil")))
    options.check(spec(*inside("timeout 5 BIN/../programs/wc -l")))


def test_a_step_of_a_chain_is_named():
    chain = specification.read(
        cli(steps=[{"binary": "wc"}, {"binary": "sort", "fixed_args": ["-u", "--outp=x"]}])
    )
    with pytest.raises(OptionNotAllowed) as refused:
        options.check(chain)
    assert refused.value.field == "steps[1].fixed_args[1]"


@pytest.mark.parametrize(
    ("link", "target"),
    [("editor", "ed"), ("mine", "git"), ("python3", "python3.11")],
)
def test_a_link_is_what_it_leads_to(programs: Path, link: str, target: str):
    (programs / link).unlink(missing_ok=True)
    (programs / link).symlink_to(programs / target)
    refusal(link, "-c")


def test_a_program_under_a_listed_name_has_that_list_wherever_it_leads(programs: Path):
    (programs / "tar").unlink()
    (programs / "tar").symlink_to(programs / "wc")
    assert refusal("tar", "-tf", "a", "-I", "sh") == "fixed_args[2]"


@pytest.mark.invariant(14)
@pytest.mark.parametrize(
    ("line", "argument", "allowed"),
    [
        ("git log", {"name": "max-count", "type": "integer"}, True),
        ("git log", {"name": "output", "type": "string"}, False),
        ("git log", {"name": "oneline", "type": "boolean"}, False),
        ("git", {"name": "exec-path", "type": "string"}, False),
        ("git log --", {"name": "max-count", "type": "integer"}, False),
        ("curl", {"name": "max-time", "type": "integer"}, True),
        ("curl", {"name": "output", "type": "string"}, False),
        ("curl -o x", {"name": "conf", "type": "string"}, False),
        ("sh -c true", {"name": "anything", "type": "string"}, False),
        ("python3 x.py", {"name": "anything", "type": "string"}, False),
        ("timeout 5 BIN/git log", {"name": "output", "type": "string"}, False),
        ("timeout 5 BIN/git log", {"name": "since", "type": "string"}, True),
        ("wc", {"name": "anything", "type": "string"}, True),
        ("git log", WORD, True),
        ("git", WORD, False),
        ("jq .", WORD, True),
        ("jq", WORD, False),
        ("jq -r", WORD, False),
        ("sed -e s/a/b/", WORD, True),
        ("awk {print}", WORD, True),
        ("sh -c true", WORD, True),
        ("sh /srv/report.sh", WORD, True),
        ("python3 -c pass", WORD, True),
        ("env BIN/sh -c true", WORD, True),
        ("env", WORD, False),
        ("timeout 5", WORD, False),
        ("xargs", WORD, False),
        ("nice", WORD, False),
        ("ssh host uptime", WORD, False),
        ("scp a", WORD, False),
        ("rsync a", WORD, False),
        ("find", WORD, True),
        ("tar -tf a.tar", WORD, True),
    ],
)
def test_arguments_from_mail_are_never_options_off_the_list_nor_code(line, argument, allowed):
    binary, *words = inside(line)
    if allowed:
        options.check(spec(binary, *words, args=[argument]))
    else:
        assert refusal(binary, *words, args=[argument]).startswith("args[0]")


@pytest.mark.invariant(14)
@pytest.mark.fault("exec-02", "W19")
@pytest.mark.parametrize(
    ("line", "value", "allowed"),
    [
        ("find", "docs", True),
        ("find", "-delete", False),
        ("find", "(", False),
        ("find", "!", False),
        ("less", "+!sh", False),
        ("less", "-o", False),
        ("sh -c true", "-c", False),
        ("sh -c true", "+o", False),
        ("perl -e 1", "-e", False),
        ("env BIN/perl -e 1", "-e", False),
        ("perl -ne print", "report.txt", True),
        ("perl -ne print", "touch x|", False),
        ("perl -ne print", " >x", False),
        ("deno run /srv/report.ts", "https://example.org/x.ts", True),
        ("awk {print}", "FS=x", False),
        ("awk {print}", "a.txt", True),
        ("awk {print}", "/inet/tcp/0/example.org/80", False),
        ("sendmail -oi", "|sh", False),
        ("sendmail -oi", "bob@example.org", True),
        ("git fetch", "ext::sh", False),
        ("git log", "-O", True),
        ("curl", "https://example.org/", True),
        ("curl", "file:///etc/passwd", False),
        ("curl", "FILE:///etc/passwd", False),
        ("wget", "/etc/passwd", False),
        ("wc", "-x", True),
    ],
)
def test_even_behind_a_double_dash_a_word_must_be_data(line, value, allowed):
    binary, *words = inside(line)
    command = spec(binary, *words, args=[WORD], end_of_options=True)
    supplied = spec(binary, *words, args=[WORD | {"from_pipe": "/data"}], end_of_options=True)
    if allowed:
        assert arguments.check(command, {"word": value}) == {"word": value}
        assert arguments.complete(supplied, {}, {"data": value}) == {"word": value}
        return
    with pytest.raises(ArgumentInvalid):
        arguments.check(command, {"word": value})
    with pytest.raises(ArgumentInvalid):
        arguments.complete(supplied, {}, {"data": value})


def test_a_named_value_that_names_a_file_is_refused():
    command = spec("curl", args=[{"name": "header", "type": "string"}])
    assert arguments.check(command, {"header": "A: b"})
    with pytest.raises(ArgumentInvalid):
        arguments.check(command, {"header": "@/etc/passwd"})


@pytest.mark.one_database
@pytest.mark.django_db
@pytest.mark.invariant(14)
@pytest.mark.fault("exec-04")
def test_it_is_refused_at_load_and_again_at_run(owner, programs, settings, tmp_path):
    bad = commands.load_file(
        owner.write(cli("fetch", binary="git", fixed_args=["clone", "--upload-p=sh"])), by=OPERATOR
    )
    assert (bad.outcome, bad.cause, bad.reason, bad.field) == (
        "rejected", "option", "option-not-allowed", "fixed_args[1]"
    )  # fmt: skip
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"wc": {"flags": ["-l"]}}))
    settings.SAFE_OPTIONS_FILE = str(own)
    command = owner.install("count", binary="wc", fixed_args=["-l"])
    assert verification.runnable(command).name == "count"
    own.write_text(json.dumps({"wc": {"flags": ["-c", "-m"]}}))
    with pytest.raises(CommandNotRunnable) as refused:
        verification.runnable(Command.objects.get(name="count"))
    assert refused.value.rule == "option-not-allowed"


def test_a_file_of_ones_own_replaces_adds_and_takes_away(settings, tmp_path):
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"sort": {"flags": ["--all"]}, "wc": {}, "curl": None}))
    settings.SAFE_OPTIONS_FILE = str(own)
    options.check(spec("sort", "--all"))
    options.check(spec("curl", "-K", "x"))
    assert refusal("sort", "-u") == "fixed_args[0]"
    assert refusal("wc", "-l") == "fixed_args[0]"
    assert refusal("git", "-c", "x=y", "log") == "fixed_args[0]"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"wc": 1}', '{"wc": {"flag": []}}', '{"wc": {"flags": "-l"}}', None]
)
def test_a_file_that_cannot_be_read_lets_nothing_run(settings, tmp_path, content):
    own = tmp_path / "own.json"
    if content is not None:
        own.write_text(content)
    settings.SAFE_OPTIONS_FILE = str(own)
    with pytest.raises(OptionNotAllowed, match="SAFE_OPTIONS_FILE"):
        options.check(spec("wc", "-l"))


def test_every_program_of_the_issue_is_listed():
    for name in MUST:
        assert list(options._listed(name)), name


def test_this_machines_own_names_are_recognised(settings):
    settings.ALLOWED_BINARIES = ["/usr/bin", "/bin"]
    for name in ("sh", "awk", "perl", "python3"):
        if shutil.which(name):
            assert list(options._listed(name)), name

"""The worker's environment: declared variables, its word and token, and what keeps it quiet.

The key of the Messages API is not among them: `broker` holds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.runners import base
from pipelines.runners.claude.lodging import Lodging
from pipelines.runners.claude.servers import TOKEN
from pipelines.types import Job

#: No telemetry, no updates, and answers of our tools as they are (sister-28).
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "MAX_MCP_OUTPUT_TOKENS": "2000000",
}
#: The program reads the system's certificates one file after the other, for some 25 ms. A worker
#: that reaches nothing by TLS has no use for them.
_PLAIN = {"CLAUDE_CODE_CERT_STORE": "bundled"}

#: Shorter values are not looked for: they would be found everywhere.
_SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All variables of one run, and which of their values nobody else may read.

    `confidential` has each of them as it is and as it stands inside JSON, longest first.
    """

    variables: dict[str, str] = field(repr=False)
    confidential: tuple[str, ...] = field(repr=False)

    def betrayed_by(self, output: bytes) -> bool:
        """Whether a text holds one of the secrets that the worker was given."""
        return any(value.encode() in output for value in self.confidential)

    def hide_in(self, text: str) -> str:
        """A text for the operator, without them."""
        for value in self.confidential:
            text = text.replace(value, "[secret]")
        return text


@dataclass(frozen=True, slots=True)
class Model:
    """Where the worker finds the Messages API, and the word that stands for the key there.

    The key itself is known here so that it is noticed wherever it turns up.
    """

    url: str
    word: str = field(repr=False)
    key: str = field(repr=False)


def build(
    job: Job, lodging: Lodging, token: str, model: Model, *, plain: bool = False
) -> Surroundings:
    """Resolve what the worker gets; SecretUnavailable where a reference does not.

    `plain`: nothing that it may reach speaks TLS.
    """
    declared = base.environment(job)
    variables = {
        **declared,
        **_QUIET,
        **(_PLAIN if plain else {}),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(lodging.home),
        "SHELL": "/bin/bash",
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": model.word,
        TOKEN: token,
    }
    values = (model.key, model.word, token, *(declared[name] for name in job.spec.environment))
    return Surroundings(variables, forms(values))


def forms(values: Iterable[str]) -> tuple[str, ...]:
    """What to look for: a secret of several lines, or with quotes, looks different inside JSON."""
    long_enough = [value for value in values if len(value) >= _SHORTEST]
    inside = [json.dumps(value, ensure_ascii=False)[1:-1] for value in long_enough]
    return tuple(sorted({*long_enough, *inside}, key=len, reverse=True))

"""Structured logs: one processor chain for our own lines and for everybody else's.

What a line says may come from a stranger: a header of his request, a sentence of his mail server.
JSON escapes it; for people it is made visible, so that nobody forges a line or steers a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

#: What structlog would load at each start where it is there, for colours and a log not used here.
_UNUSED = [name for name in ("rich", "twisted") if name not in sys.modules]
for _name in _UNUSED:
    sys.modules[_name] = None  # type: ignore[assignment]  # it is said not to be there
import structlog  # noqa: E402

for _name in _UNUSED:
    del sys.modules[_name]

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
]


#: Control and direction characters, and what stands in their place.
_VISIBLE = {
    code: rf"\u{code:04x}"
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
#: A traceback keeps its lines.
_VISIBLE_IN_LINES = {code: text for code, text in _VISIBLE.items() if chr(code) not in "\n\t"}
_OF_SEVERAL_LINES = frozenset({"exception", "stack"})


def visible(logger: Any, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: every text of a line without characters that a terminal obeys."""
    for name, value in entry.items():
        if isinstance(value, str):
            lines = name in _OF_SEVERAL_LINES
            entry[name] = value.translate(_VISIBLE_IN_LINES if lines else _VISIBLE)
    return entry


def configure(form: str, level: str) -> dict[str, Any]:
    """Set structlog up and return Django's LOGGING. `form` is `console` or `json`."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    rendering: list[Any] = (
        [structlog.processors.JSONRenderer()]
        if form == "json"
        else [visible, structlog.dev.ConsoleRenderer(colors=False)]
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *rendering,
                ],
                "foreign_pre_chain": _SHARED,
            }
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stderr",
                "formatter": "structured",
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"level": "WARNING"},
            "django.request": {"level": "ERROR"},
            "django-q": {"level": "WARNING"},
            "daphne": {"level": "WARNING"},
            "mcp": {"level": "WARNING"},
            "axes": {"level": "WARNING"},
        },
    }

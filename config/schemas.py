"""What is published for whoever writes commands: no token, and nothing of this installation."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from pipelines import selectors


@require_safe
def command_schema(request: HttpRequest) -> JsonResponse:
    """The JSON Schema of `command/1`, at an address that stays."""
    return JsonResponse(selectors.command_schema(), json_dumps_params={"indent": 2})

"""The one error shape for answers that no operation gave: wrong address, wrong method."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.deprecation import MiddlewareMixin

from guards.fronts.api import ErrorOut

PREFIX = "/api/"

#: What these answers are called; others take the word of their class of status.
_WORDS: dict[int, tuple[str, str]] = {
    400: ("bad-request", "This request cannot be read."),
    404: ("not-found", "There is no such address here."),
    405: ("method-not-allowed", "This address takes another method; the Allow header names it."),
}
_KEPT = ("Allow", "Retry-After", "WWW-Authenticate")


class OneShapeMiddleware(MiddlewareMixin):
    """Below `/api/`, turns a page that says no into the API's shape, with the same status."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Leave what is a success, or has its shape already."""
        status = response.status_code
        if status < 400 or not request.path.startswith(PREFIX) or _is_json(response):
            return response
        otherwise = ("internal-error", "Something failed here; the log says what.")
        code, message = _WORDS.get(status, otherwise if status >= 500 else _WORDS[400])
        shaped: HttpResponse = JsonResponse(
            ErrorOut(code=code, message=message).model_dump(), status=status
        )
        for header in _KEPT:
            if header in response.headers:
                shaped.headers[header] = response.headers[header]
        return shaped


def _is_json(response: HttpResponseBase) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith("application/json")

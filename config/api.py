"""`/api/v1`: the one API, put together from the apps' routers.

Each app's `api.py` has a `router`; what it says to whom is its business. The docs page works
offline: its scripts come from this installation, and its policy allows nothing else.
"""

from __future__ import annotations

from django.utils.module_loading import import_string
from ninja import NinjaAPI, Swagger

from config import api_files
from guards.fronts.api import install_handlers

#: Whose routers are mounted, in the order in which the docs page shows them.
ROUTERS = (
    "mail.api.router",
    "guards.api.router",
    "pipelines.api.router",
    "approvals.api.router",
    "teams.api.router",
)


class OwnSwagger(Swagger):
    """The docs page with this installation's own scripts, though ninja is no installed app."""

    template_cdn = str(api_files.TEMPLATES / Swagger.template)


api = NinjaAPI(
    title="Countersign",
    version="1",
    description=(
        "Reads what this installation received, decided and did. Every call needs a bearer token "
        "with the scope that the operation names; every refusal is one shape: "
        "code, message, field, rule."
    ),
    urls_namespace="api-v1",
    docs=OwnSwagger(settings={"persistAuthorization": False, "tryItOutEnabled": True}),
)
install_handlers(api)
for _router in ROUTERS:
    api.add_router("", import_string(_router))

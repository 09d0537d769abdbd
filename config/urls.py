"""Every address of the house."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path, reverse_lazy
from django.views.generic import RedirectView

from config import panels
from config.api import api
from config.health import healthz, readyz
from config.schemas import command_schema

admin.autodiscover()
panels.register()

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(url=reverse_lazy("admin:index")), name="home"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/v1/", api.urls),
    path("schemas/command-1.json", command_schema, name="command-schema"),
    path("admin/", admin.site.urls),
]

"""Websocket addresses of teams; `config.asgi` wraps them in sessions."""

from __future__ import annotations

from django.urls import path

from teams.consumers import FeedConsumer

websocket_urlpatterns = [
    path("ws/feed", FeedConsumer.as_asgi()),
]

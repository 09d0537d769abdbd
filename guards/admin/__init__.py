"""The console's pages of guards: who is known here, with which keys and rights, and what was said.

Records are read-only. Everything else is written by services, behind forms and buttons.
"""

from django.contrib import admin
from django_q.models import Failure, OrmQ, Schedule, Success

from guards.admin import contacts, identities, keys, records, tokens

__all__ = ["contacts", "identities", "keys", "records", "tokens"]

# django-q2's own pages edit rows that name functions, and show pickles.
for _model in (Schedule, Success, Failure, OrmQ):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)

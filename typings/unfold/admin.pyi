from typing import Any, TypeVar

from django.contrib import admin
from django.db.models import Model

_M = TypeVar("_M", bound=Model)
_C = TypeVar("_C", bound=Model)
_P = TypeVar("_P", bound=Model)

class ModelAdmin(admin.ModelAdmin[_M]):
    compressed_fields: bool
    list_before_template: str | None
    list_after_template: str | None
    list_fullwidth: bool
    list_filter_submit: bool
    list_filter_sheet: bool
    list_disable_select_all: bool
    list_horizontal_scrollbar_top: bool
    change_form_before_template: str | None
    change_form_after_template: str | None
    change_form_outer_before_template: str | None
    change_form_outer_after_template: str | None
    change_form_show_cancel_button: bool
    conditional_fields: dict[str, str]
    readonly_preprocess_fields: dict[str, Any]
    show_add_link: bool
    warn_unsaved_form: bool
    add_fieldsets: Any

class TabularInline(admin.TabularInline[_C, _P]):
    tab: bool
    hide_title: bool
    collapsible: bool

class StackedInline(admin.StackedInline[_C, _P]):
    tab: bool
    hide_title: bool
    collapsible: bool

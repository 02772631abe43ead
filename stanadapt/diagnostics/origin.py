"""What the attributes of a result tell of the method that has drawn it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import samplers
from ..result.container import json_attribute
from ..samplers.base import NO_TARGET, Facts


def facts_of(attrs: Mapping[str, Any]) -> Facts | None:
    """The facts of the method; None where it is none of ours."""
    method = attrs.get("method")
    known = isinstance(method, str) and method in samplers.METHODS
    return samplers.facts(str(method)) if known else None


def settings_of(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the method; none, where the attribute of that name is somebody else's."""
    settings: dict[str, Any] = json_attribute(attrs, "settings", {})
    return settings


def target_accept(attrs: Mapping[str, Any]) -> float | None:
    """The acceptance rate that the method aims at; None where it has no such aim."""
    facts, target = facts_of(attrs), settings_of(attrs).get("target_accept")
    if facts is None or facts.acceptance == NO_TARGET or not isinstance(target, float):
        return None
    return target

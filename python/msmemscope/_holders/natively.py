"""Asks foreign objects what they are without running code of theirs: only the interpreter's own types answer."""

from __future__ import annotations

from typing import Any

#: Of real types, so that no metaclass is asked.
is_subtype = type.__subclasscheck__
name_of_type = type.__dict__["__name__"].__get__
order_of_type = type.__dict__["__mro__"].__get__
type_contents = type.__dict__["__dict__"].__get__


def is_kind(thing: Any, *kinds: type) -> bool:
    """Whether an object is of a built-in type, by its real type and without asking it."""
    return any(is_subtype(kind, type(thing)) for kind in kinds)


def type_name(thing: Any) -> str:
    """The name of an object's type."""
    return str(name_of_type(type(thing)))


def static_attribute(kind: type, name: str) -> Any:
    """What a type has under a name, without binding or calling it."""
    for base in order_of_type(kind):
        contents = type_contents(base)
        if name in contents:
            return contents[name]
    return None


def is_module(thing: Any) -> bool:
    """Whether an object is a module of PyTorch, which is not imported for the question."""
    return static_attribute(type(thing), "register_forward_hook") is not None

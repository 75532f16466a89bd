"""Hooks into functions of frameworks, for labels and snapshots where users cannot put them.

The functions are named in :mod:`msmemscope.frameworks`, framework by framework; functions of modules that are not
imported yet are hooked when they are.
"""

from __future__ import annotations

from .manager import cleanup_framework_hooks, init_framework_hooks

__all__ = ["cleanup_framework_hooks", "init_framework_hooks"]

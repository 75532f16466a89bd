"""Imported by the recorder when the command line started this program, not by users.

Importing it brings the Python side into a program that does not import the package itself: operators,
accesses, labels of frameworks, snapshots at a lack of memory, the Python trace.
"""

from __future__ import annotations

from . import _collectors, _import_hook

_collectors.synchronise()
_import_hook.when_imported("torch_npu", _collectors.synchronise)

"""Prepares Python processes that run on the stand-in device.

A CUDA build of torch and torch_npu register the same allocator keys, which ends the process. Just before torch_npu
is imported, a small library is loaded that keeps the two apart; see allocator_keys.cpp. A CPU build of torch needs
nothing. Afterwards the sitecustomize that this one hides, if any, is run as usual.
"""

import ctypes
import importlib.machinery
import importlib.util
import os
import sys


class _KeepAllocatorKeysApart:
    """Import hook that acts once, when torch_npu is looked for, and never finds a module itself."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        torch = sys.modules.get("torch")
        if name == "torch_npu" and torch is not None:
            sys.meta_path.remove(_KeepAllocatorKeysApart)
            library = os.path.join(os.path.dirname(__file__), "liballocator_keys.so")
            version = getattr(torch, "version", None)
            if getattr(version, "cuda", None) and os.path.exists(library):
                ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        return None


def _run_hidden_sitecustomize():
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _KeepAllocatorKeysApart)
_run_hidden_sitecustomize()

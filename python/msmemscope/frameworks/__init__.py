"""Frameworks that are known by name: one module each, all of the same shape.

A module describes a framework as a :class:`.protocol.Framework`: which package it is, and, by version, the functions
around which something is done: memory that they allocate gets labels, snapshots are taken before and after, a step of
the framework's own loop ends with them. :mod:`msmemscope.hijacker.manager` puts the hooks there and takes them away
again.
A new framework is a module here and its line in the table below.
"""

from __future__ import annotations

from . import accelerate, deepspeed, megatron, mindspeed_llm, pytorch, transformers, verl, vllm_ascend
from .protocol import Framework

#: By the name that ``init_framework_hooks`` takes.
FRAMEWORKS: dict[str, Framework] = {
    framework.name: framework
    for framework in (
        vllm_ascend.FRAMEWORK,
        verl.FRAMEWORK,
        mindspeed_llm.FRAMEWORK,
        pytorch.FRAMEWORK,
        megatron.FRAMEWORK,
        deepspeed.FRAMEWORK,
        transformers.FRAMEWORK,
        accelerate.FRAMEWORK,
    )
}

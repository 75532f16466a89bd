"""vLLM on Ascend: weights, key-value cache, profiling, warm-up, serving, graphs; a step is one of its engine's.

Its classes have had these functions from 0.9 to 0.23, which is why one table serves all; ``11.0`` is the spelling of
0.11.0 in the tool's older documents.
"""

from __future__ import annotations

from ..describe import DETAIL_1
from . import _vllm_memory
from .protocol import DECOMPOSE, SNAPSHOT, Framework, Target, labels

_RUNNER = ("vllm_ascend.worker.model_runner_v1", "NPUModelRunner")
#: The module's name until 0.11, and since.
_WORKERS = (("vllm_ascend.worker.worker_v1", "NPUWorker"), ("vllm_ascend.worker.worker", "NPUWorker"))

_DECOMPOSE = (
    Target(*_RUNNER, "profile_run", labels("vllm", "profile")),
    Target(*_RUNNER, "execute_model", labels("vllm", "serve"), ends_step=True),
    Target(*_RUNNER, "capture_model", (("graph_pool", DETAIL_1),)),
    Target(*_RUNNER, "load_model", tagger=_vllm_memory.tag_model_weights),
    Target(*_RUNNER, "initialize_kv_cache_tensors", tagger=_vllm_memory.tag_kv_cache),
    *(Target(*worker, "compile_or_warm_up_model", labels("vllm", "warmup")) for worker in _WORKERS),
)

_SNAPSHOT = (
    *(
        Target(*_RUNNER, name)
        for name in ("load_model", "profile_run", "initialize_kv_cache", "execute_model", "capture_model")
    ),
    *(Target(*worker, "compile_or_warm_up_model") for worker in _WORKERS),
)

_WORKER_HOOKS = {"worker": {DECOMPOSE: _DECOMPOSE, SNAPSHOT: _SNAPSHOT}}

FRAMEWORK = Framework(
    name="vllm_ascend",
    module="vllm_ascend",
    distribution="vllm-ascend",
    versions={"0.9+": _WORKER_HOOKS, "11.0": _WORKER_HOOKS},
)

"""MindSpeed-LLM and the Megatron it trains with: snapshots around its stages, layers and optimizers.

It is on no package index; the names are those of its public sources and of the tool's documents.
"""

from __future__ import annotations

from .megatron import OPTIMIZER, OPTIMIZER_STEPS, READY_GRADIENTS
from .protocol import SNAPSHOT, Framework, Target

_TRANSFORMER = "mindspeed_llm.core.transformer"

_SNAPSHOT = (
    Target("mindspeed_llm.training.training", None, "train"),
    Target("mindspeed_llm.training.training", None, "train_step"),
    Target("megatron.training.training", None, "setup_model_and_optimizer"),
    Target("megatron.training.training", None, "get_model"),
    Target(OPTIMIZER, None, "get_megatron_optimizer"),
    Target("mindspeed_llm.core.models.gpt.gpt_model", "GPTModel", "forward"),
    Target("mindspeed_llm.core.models.gpt.gpt_model", "GPTModel", "compute_language_model_loss"),
    Target(f"{_TRANSFORMER}.transformer_block", "TransformerBlock", "forward"),
    Target(f"{_TRANSFORMER}.transformer_layer", "TransformerLayer", "forward"),
    Target(f"{_TRANSFORMER}.attention", "SelfAttention", "forward"),
    Target(f"{_TRANSFORMER}.mlp", "MLP", "forward"),
    Target(f"{_TRANSFORMER}.moe.moe_layer", "MoELayer", "forward"),
    Target(f"{_TRANSFORMER}.moe.router", "TopKRouter", "forward"),
    Target("megatron.core.pipeline_parallel.schedules", None, "backward_step"),
    Target("mindspeed_llm.core.pipeline_parallel.dualpipe.gpt_model", None, "gpt_model_backward"),
    Target("megatron.core.tensor_parallel.cross_entropy", None, "vocab_parallel_cross_entropy"),
    *(Target(*step) for step in OPTIMIZER_STEPS),
    Target(*READY_GRADIENTS),
)

FRAMEWORK = Framework(
    name="mindspeed_llm",
    module="mindspeed_llm",
    distribution="mindspeed-llm",
    versions={"0.12.1": {"training": {SNAPSHOT: _SNAPSHOT}}},
)

"""Hugging Face's Trainer: evaluation and checkpoints as phases, its own steps."""

from __future__ import annotations

from .protocol import DECOMPOSE, SNAPSHOT, Framework, Target, labels

_TRAINER = ("transformers.trainer", "Trainer")

_DECOMPOSE = (
    Target(*_TRAINER, "evaluate", labels("hf_trainer", "evaluate")),
    Target(*_TRAINER, "predict", labels("hf_trainer", "predict")),
    Target(*_TRAINER, "_save_checkpoint", labels("hf_trainer", "save")),
    Target(*_TRAINER, "_load_from_checkpoint", labels("hf_trainer", "load")),
    # After accumulation of gradients, whatever optimizer is behind it.
    Target("transformers.trainer_callback", "CallbackHandler", "on_step_end", ends_step=True),
)

_SNAPSHOT = tuple(
    Target(*_TRAINER, name)
    for name in ("train", "create_optimizer", "training_step", "evaluate", "predict", "_save_checkpoint")
)

FRAMEWORK = Framework(
    name="transformers",
    module="transformers",
    distribution="transformers",
    versions={"4.40+": {"trainer": {DECOMPOSE: _DECOMPOSE, SNAPSHOT: _SNAPSHOT}}},
)

"""Small jobs of real frameworks, with random weights: nothing is marked, nothing imports the tool.

Usage: jobs.py trainer|accelerate|zero0|zero2|zero3|megatron
"""

import os
import sys
import tempfile

import torch
import torch_npu  # noqa: F401

STEPS = 6
WIDTH = 64
VOCABULARY = 256


def alone():
    """A group of one rank."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")


def language_model():
    import transformers

    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=WIDTH, n_positions=64, vocab_size=VOCABULARY)
    return transformers.GPT2LMHeadModel(config)


def sentences(count):
    ids = torch.randint(0, VOCABULARY, (count, 32))
    return [{"input_ids": line, "labels": line} for line in ids]


def trainer():
    """Hugging Face's Trainer, which accumulates gradients, evaluates and saves."""
    import transformers

    with tempfile.TemporaryDirectory() as directory:
        arguments = transformers.TrainingArguments(
            output_dir=directory,
            max_steps=STEPS,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            eval_strategy="steps",
            eval_steps=3,
            save_steps=3,
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        worker = transformers.Trainer(
            language_model(), arguments, train_dataset=sentences(64), eval_dataset=sentences(4)
        )
        worker.train()
        return [entry["loss"] for entry in worker.state.log_history if "loss" in entry]


def accelerate():
    """A loop with an Accelerator around it."""
    from accelerate import Accelerator

    accelerator = Accelerator()
    model = language_model()
    loader = torch.utils.data.DataLoader(sentences(2 * STEPS), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
    losses = []
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().reshape(1)).item())
    with tempfile.TemporaryDirectory() as directory:
        accelerator.save_state(directory)
    return losses


def zero(stage):
    """DeepSpeed's engine, with its optimizer spread in one of its stages."""
    import deepspeed

    alone()
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH))
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, config=settings, dist_init_required=True)
    batch = torch.randn(4, WIDTH, device=engine.device)
    losses = []
    for _ in range(STEPS):
        loss = (engine(batch) - batch).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def megatron():
    """A GPT of Megatron-core with its own data parallel buffers and optimizer."""
    from torch_npu.contrib import transfer_to_npu  # noqa: F401

    alone()
    torch.distributed.init_process_group("hccl")
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=WIDTH,
        num_attention_heads=4,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
    )
    model = GPTModel(config, get_gpt_layer_local_spec(), VOCABULARY, 32).npu()
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=0.0), [model])
    ids = torch.randint(0, VOCABULARY, (2, 32)).npu()
    positions = torch.arange(32).npu().expand(2, 32)
    losses = []
    for _ in range(STEPS):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        loss = model(ids, positions, None, labels=ids).mean()
        loss.backward()
        model.finish_grad_sync()
        optimizer.step()
        losses.append(loss.item())
    return losses


JOBS = {
    "trainer": trainer,
    "accelerate": accelerate,
    "zero0": lambda: zero(0),
    "zero2": lambda: zero(2),
    "zero3": lambda: zero(3),
    "megatron": megatron,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    print("losses", *JOBS[sys.argv[1]]())

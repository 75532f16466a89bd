"""Trains a small model of a family of transformers, with random weights: nothing is marked, nothing imports the tool.

Usage: families.py gpt2|llama|bert|vit|lora
"""

import sys
import tempfile

import torch
import torch_npu  # noqa: F401
import transformers

STEPS = 10
WIDTH = 64
VOCABULARY = 512


def tokens(batch=4, length=32):
    return torch.randint(0, VOCABULARY, (batch, length)).npu()


def train(model, batches):
    """The loop that everybody writes."""
    model = model.npu().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 2, STEPS)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def language_batches():
    # The same one again and again, so that the loss must fall.
    ids = tokens()
    for _ in range(STEPS):
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=WIDTH, n_positions=64, vocab_size=VOCABULARY)
    return train(transformers.GPT2LMHeadModel(config), language_batches())


def llama_model():
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        vocab_size=VOCABULARY,
    )
    return transformers.LlamaForCausalLM(config)


def llama():
    return train(llama_model(), language_batches())


def bert():
    config = transformers.BertConfig(
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        vocab_size=VOCABULARY,
        num_labels=3,
    )
    ids = tokens()
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([0, 1, 2, 0]).npu()}
    return train(transformers.BertForSequenceClassification(config), [batch] * STEPS)


def vit():
    config = transformers.ViTConfig(
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        image_size=32,
        patch_size=8,
        num_labels=3,
    )
    batch = {"pixel_values": torch.randn(4, 3, 32, 32).npu(), "labels": torch.tensor([0, 1, 2, 0]).npu()}
    return train(transformers.ViTForImageClassification(config), [batch] * STEPS)


class Sentences(torch.utils.data.Dataset):
    """The same sentence again and again."""

    def __init__(self):
        self.ids = torch.randint(0, VOCABULARY, (32,))

    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, index):
        return {"input_ids": self.ids, "attention_mask": torch.ones_like(self.ids), "labels": self.ids}


def lora():
    import peft

    adapters = peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(llama_model(), adapters)
    with tempfile.TemporaryDirectory() as directory:
        arguments = transformers.TrainingArguments(
            output_dir=directory,
            per_device_train_batch_size=4,
            num_train_epochs=1,
            learning_rate=1e-2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Sentences())
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    torch.manual_seed(0)
    losses = [float(loss) for loss in globals()[sys.argv[1]]()]
    print("losses", len(losses), "fell" if losses[-1] < losses[0] else f"rose: {losses}")

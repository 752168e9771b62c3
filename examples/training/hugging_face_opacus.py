"""The Hugging Face Trainer with Opacus: a small BERT, watched, and stopped before the budget is passed.

    python hugging_face_opacus.py

Three habits of the Trainer do not fit; they are marked below. The model starts from random weights, so that
nothing is downloaded; `BertForSequenceClassification.from_pretrained(...)` takes the same place.
"""

from __future__ import annotations

import tempfile

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from calipers.adapters.opacus import attach
from calipers.callbacks.transformers import PrivacyBudget

# Fixed in advance, without looking at the data. 1049, 1050 and 1051 records make 11 batches: the rate does not move.
RECORDS, BATCH, EPOCHS = 1050, 100, 2
NOISE, CLIP, RATE = 1.0, 1.0, 0.005
EPSILON, DELTA = 4.0, 1e-5
LOSS = torch.nn.CrossEntropyLoss(reduction="sum")


class PrivateTrainer(Trainer):
    """The Trainer with the loader and the loss of a private training."""

    def __init__(self, *arguments, private_loader, **options):
        super().__init__(*arguments, **options)
        self.private_loader = private_loader

    def get_train_dataloader(self):
        """First: the Trainer would make a shuffled loader of its own; use the one that `make_private` returned."""
        return self.private_loader

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Second: the Trainer divides by `num_items_in_batch`, a number that every record of the batch has a part in.

        A sum over records keeps each by itself. For a language model take each text's own mean over its tokens, then
        the sum over texts; a mean over all tokens of the batch is not bounded by clipping.
        """
        tokens, labels = inputs
        outputs = model(input_ids=tokens)
        loss = LOSS(outputs.logits, labels)
        return (loss, outputs) if return_outputs else loss


class ZeroGrad(TrainerCallback):
    """Third: the Trainer never calls `optimizer.zero_grad()`.

    Opacus keeps the gradients of the records and their clipped sum until then; without it the second step raises,
    "Gradients haven't been cleared since the last optimizer step".
    """

    def on_step_end(self, args, state, control, optimizer=None, **things):
        """After the step; the optimizer is the one that Accelerate wrapped."""
        optimizer.zero_grad()


def main() -> None:
    """Fine-tune the last layers."""
    torch.manual_seed(0)
    tokens = torch.randint(5, 50, (RECORDS, 8))
    data = TensorDataset(tokens, (tokens[:, 0] > 25).long())
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2,
        max_position_embeddings=16, attn_implementation="eager",
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    for parameter in model.parameters():
        parameter.requires_grad = False
    for part in (model.bert.encoder.layer[-1], model.bert.pooler, model.classifier):
        for parameter in part.parameters():
            parameter.requires_grad = True
    model.train()
    torch.seed()

    engine = PrivacyEngine()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.AdamW(trained, lr=RATE),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        loss_reduction="sum",  # as LOSS: nothing is divided
    )
    record = attach(engine, optimizer, loader, loss=LOSS, adjacency="add-remove")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=EPOCHS, use_cpu=True, disable_tqdm=True, report_to=[],
            max_grad_norm=0,  # Opacus clips each record
            # A loss is released without noise where it is logged; so is train_loss, which is printed at the end.
            logging_strategy="no",
            save_strategy="no",
        )  # fmt: skip
        trainer = PrivateTrainer(
            model=model, args=arguments, train_dataset=data, private_loader=loader, optimizers=(optimizer, None),
            callbacks=[ZeroGrad(), PrivacyBudget(record, epsilon=EPSILON, delta=DELTA)],
        )  # fmt: skip
        trainer.train()
    print(f"{record.steps} steps, epsilon at delta = {DELTA}: {record.epsilon(DELTA)}")
    print(f"not described: {record.why_not() or 'nothing'}")


if __name__ == "__main__":
    main()

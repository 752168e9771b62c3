"""Models of Hugging Face as they are: dictionaries with masks, their own loss, adapters; clipped record by record."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from calipers.errors import InputError  # noqa: E402
from calipers.samplers import Poisson  # noqa: E402
from calipers.training import Plan, cross_entropy, own_loss, train, with_lora  # noqa: E402
from calipers.training.gradients import GradientSum  # noqa: E402

# What other libraries warn of is theirs to mend: peft asks transformers for a name that has a successor.
pytestmark = [pytest.mark.callbacks, pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")]

N, LENGTH, WORDS = 12, 8, 60
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}


def texts(labels):
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(1, WORDS, (N, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < torch.arange(N)[:, None] % 6 + 3).long()
    return {"input_ids": words, "attention_mask": mask, "labels": words if labels is None else labels}


def classifier():
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "num_labels": 3, "max_position_embeddings": LENGTH, "attn_implementation": "eager"}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, **none, **SMALL))


def language_model():
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "max_position_embeddings": LENGTH, "attn_implementation": "eager"}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **SMALL))


class Rows(torch.utils.data.Dataset):
    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return N

    def __getitem__(self, row):
        return {name: tensor[row] for name, tensor in self.tensors.items()}


def clipped_by_hand(model, records, norm, loss):
    """One ordinary backward pass per record."""
    trained = [p for p in model.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in trained))
    for row in range(N):
        record = {name: tensor[row : row + 1] for name, tensor in records.items()}
        gradients = torch.autograd.grad(loss(model(**record), record.get("labels")), trained)
        flat = torch.cat([g.flatten() for g in gradients])
        total += flat * min(1.0, norm / float(flat.norm()))
    return total


@pytest.mark.parametrize(
    ("make", "labels"), [(classifier, torch.arange(N) % 3), (language_model, None)], ids=["bert", "llama"]
)
def test_the_sum_is_that_of_clipped_records(make, labels) -> None:
    """By the model's own loss, with masks of many lengths; the norm is such that some are clipped and some are not."""
    model, records = make(), texts(labels)
    one = GradientSum(model, max_grad_norm=1e9, loss=own_loss)
    norms = [float(one({name: rows[i : i + 1] for name, rows in records.items()}, ()).norm()) for i in range(N)]
    norm = sorted(norms)[N // 2]
    expected = clipped_by_hand(model, records, norm, own_loss)
    found = GradientSum(model, max_grad_norm=norm, loss=own_loss)(records, ())
    assert float((found - expected).norm()) <= 1e-4 * float(expected.norm())
    # Masked words change nothing: that the mask arrives is seen by the ones that are not masked.
    other = {**records, "input_ids": torch.where(records["attention_mask"] == 1, records["input_ids"], 1)}
    if labels is not None:
        assert torch.allclose(GradientSum(model, max_grad_norm=norm, loss=own_loss)(other, ()), found, atol=1e-6)
        whole = {**records, "attention_mask": torch.ones_like(records["attention_mask"])}
        assert not torch.allclose(GradientSum(model, max_grad_norm=norm, loss=own_loss)(whole, ()), found, atol=1e-6)


def test_a_training_by_name_resumes_and_either_loss_is_the_same(tmp_path) -> None:
    plan = Plan(sampler=Poisson(dataset_size=N, batch_size=4, steps=4), noise_multiplier=1.0, learning_rate=0.1, seed=1)
    records = Rows(texts(torch.arange(N) % 3))
    whole = train(plan, classifier(), records, loss=own_loss, device="cpu").model.state_dict()
    scored = train(plan, classifier(), records, loss=cross_entropy, device="cpu").model.state_dict()
    path = tmp_path / "run.checkpoint"

    def dying(done, steps):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(plan, classifier(), records, loss=own_loss, checkpoint=path, checkpoint_every=2, progress=dying)
    again = train(plan, classifier(), records, loss=own_loss, checkpoint=path, checkpoint_every=2)
    assert again.resumed_at == 2
    for name, tensor in whole.items():
        assert torch.equal(tensor, again.model.state_dict()[name])
        assert torch.allclose(tensor, scored[name], atol=1e-5)


def adapted_by_peft(model):
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS"))


@pytest.mark.parametrize("adapt", [lambda model: with_lora(model, rank=2, layers=("query", "value")), adapted_by_peft])
def test_adapters_alone_are_clipped_and_move(adapt) -> None:
    model = adapt(classifier())
    records = texts(torch.arange(N) % 3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    found = GradientSum(model, max_grad_norm=1e-3, loss=own_loss)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert found.dimension == trained < 300
    expected = clipped_by_hand(model, records, 1e-3, own_loss)
    assert torch.allclose(found(records, ()), expected, rtol=1e-3, atol=1e-8)
    plan = Plan(sampler=Poisson(dataset_size=N, batch_size=4, steps=2), noise_multiplier=1.0, seed=1)
    run = train(plan, model, Rows(records), loss=own_loss, device="cpu").run()
    assert run.dimension == trained
    for name, parameter in model.named_parameters():
        assert name not in frozen or torch.equal(parameter, frozen[name])


def test_a_frozen_model_is_refused() -> None:
    plan = Plan(sampler=Poisson(dataset_size=N, batch_size=4, steps=2), noise_multiplier=1.0)
    with pytest.raises(InputError, match="nothing to train"):
        train(plan, classifier().requires_grad_(False), Rows(texts(torch.arange(N) % 3)), loss=own_loss, device="cpu")

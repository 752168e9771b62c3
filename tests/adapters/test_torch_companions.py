"""probe.torch on steps in which records act on each other, or that leave traces which no noise covers.

All through real models, losses, loaders and optimizers of PyTorch and Opacus. Each mistake has an honest sibling that
must be left alone.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from calipers.adapters import probe
from calipers.errors import InputError
from calipers.probing.companions import OTHERS, STATE, companion_findings
from calipers.probing.lens import Lens
from calipers.probing.probe import ProbeReport
from calipers.probing.protocol import Finding
from calipers.probing.sizes import step_numbers

torch = pytest.importorskip("torch", reason="PyTorch comes with the extra torch")
opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
pytestmark = [
    pytest.mark.opacus,
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
]


def vectors(size: int = 200, rare: int = 10) -> Any:
    """Records of two classes, the rare one last, where the first records do not show it."""
    torch.manual_seed(3)
    labels = torch.zeros(size, dtype=torch.int64)
    labels[size - rare :] = 1
    return torch.utils.data.TensorDataset(torch.randn(size, 30), labels)


def private(model: Any, data: Any, batch: int = 100, optimizer: Any = None, **settings: Any) -> tuple[Any, Any, Any]:
    loading = {"batch_size": batch, "shuffle": True} | settings.pop("loading", {})
    model, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=(optimizer or torch.optim.SGD)(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, **loading),
        **({"noise_multiplier": 1.0, "max_grad_norm": 1.0} | settings),
    )
    return model, optimizer, loader


def looped(model: Any, data: Any, loss: Any, step: Any = None, **settings: Any) -> probe.TorchLoop:
    """This model with Opacus, to be probed; `step(model, optimizer, loss)` makes a step of one's own."""
    torch.manual_seed(0)
    model, optimizer, loader = private(model, data, **settings)
    return probe.TorchLoop(model, optimizer, loader, loss, step=step and step(model, optimizer, loss))


def found(model: Any, data: Any, loss: Any, step: Any = None, batch: int = 100, **settings: Any) -> dict[str, Finding]:
    """The two findings that companions serve, without the others, by subject."""
    loop = looped(model, data, loss, step, batch=batch, **settings)
    lens = Lens(lambda *_: loop, loop.dataset_size, batch, 0)
    numbers = step_numbers(lens, batch, (2, batch))
    return {finding.subject: finding for finding in companion_findings(lens, numbers.at, batch)}


def norms_moved(finding: Finding) -> float:
    number = re.search(r"by ([\d.]+) times the clipping norm", finding.evidence)
    assert number
    return float(number[1])


def test_class_weights_in_the_mean_move_a_step_by_many_clipping_norms() -> None:
    """The mean divides by the weights of the batch: one record of the rare class changes what all others add.

    99 records of weight 1 and gradient 0.9 C and one of weight 50: each counts 100/149 instead of 1, and the sum
    moves by 99 x 0.9 x (1 - 100/149) = 29.3 C.
    """
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 50.0]))
    weighted = found(torch.nn.Linear(30, 2), vectors(), loss)[OTHERS]
    assert weighted.alarm
    assert norms_moved(weighted) == pytest.approx(99 * 0.9 * (1 - 100 / 149), rel=0.01)
    plain = found(torch.nn.Linear(30, 2), vectors(), torch.nn.CrossEntropyLoss())
    assert not plain[OTHERS].alarm
    assert not plain[STATE].alarm


def probed(model: Any, loss: Any) -> ProbeReport:
    torch.manual_seed(0)
    model, optimizer, loader = private(model, vectors())
    return probe.torch(model, optimizer, loader, loss, epochs=2)


def test_a_step_in_which_records_act_on_each_other_leads_to_no_run() -> None:
    """The report says so; without weights and buffers the same training is described by a run."""
    weights = torch.ones(40)
    weights[1] = 50.0
    weighted = probed(torch.nn.Linear(30, 40), torch.nn.CrossEntropyLoss(weight=weights))
    assert weighted.finding(OTHERS) in weighted.alarms
    assert weighted.run is None
    assert "other records" in weighted.reason
    buffered = probed(Centered(now=False), torch.nn.CrossEntropyLoss())
    assert [finding.subject for finding in buffered.alarms] == [STATE]
    assert buffered.run is None
    assert "without noise" in buffered.reason
    assert probed(Centered(now=False, frozen=True), torch.nn.CrossEntropyLoss()).run is not None


def test_weights_of_a_class_that_no_record_shows_are_found() -> None:
    """Class 2 is in no record that is read; its label is planted."""
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 50.0]))
    assert found(torch.nn.Linear(30, 3), vectors(), loss)[OTHERS].alarm


def test_weights_in_a_sum_act_on_their_own_record_only() -> None:
    """A sum has no common divisor: each weighted gradient is clipped by itself."""
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 50.0]), reduction="sum")
    assert not found(torch.nn.Linear(30, 2), vectors(), loss, loss_reduction="sum")[OTHERS].alarm


class Tokens(torch.nn.Module):
    """A language model of one layer; its output is a row a record."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.embedding(tokens))


def sentences(shortest: int = 2) -> Any:
    """Texts of 12 tokens; the targets of padding are -100, and the first texts are all equally long."""
    torch.manual_seed(4)
    tokens = torch.randint(0, 20, (120, 12))
    targets = tokens.clone()
    for number in range(60, 120):
        targets[number, shortest + number % (13 - shortest) :] = -100
    return torch.utils.data.TensorDataset(tokens, targets)


def token_mean(outputs: Any, targets: Any) -> Any:
    return torch.nn.functional.cross_entropy(outputs.reshape(-1, 20), targets.reshape(-1), ignore_index=-100)


def mean_of_each(outputs: Any, targets: Any) -> Any:
    """The honest form: each text has its own mean, and the texts are averaged."""
    losses = torch.nn.functional.cross_entropy(outputs.transpose(1, 2), targets, ignore_index=-100, reduction="none")
    return (losses.sum(dim=1) / (targets >= 0).sum(dim=1).clamp(min=1)).mean()


def test_the_mean_over_all_tokens_of_a_batch_is_found() -> None:
    """A text with fewer tokens gives every token of the others more weight; a mean of its own does not."""
    mean = found(Tokens(), sentences(), token_mean, batch=20)[OTHERS]
    assert mean.alarm
    assert norms_moved(mean) > 0.3
    assert not found(Tokens(), sentences(), mean_of_each, batch=20)[OTHERS].alarm
    assert not found(Tokens(), sentences(shortest=12), token_mean, batch=20)[OTHERS].alarm


@pytest.mark.callbacks
def test_the_loss_of_transformers_over_num_items_in_batch_is_found() -> None:
    """The Trainer divides the summed loss by the tokens of the batch (`num_items_in_batch`)."""
    losses = pytest.importorskip("transformers.loss.loss_utils")

    def loss(outputs: Any, targets: Any) -> Any:
        items = (targets[..., 1:] != -100).sum()
        return losses.ForCausalLMLoss(outputs, targets, vocab_size=20, num_items_in_batch=items)

    assert found(Tokens(), sentences(), loss, batch=20)[OTHERS].alarm


def contrasted(outputs: Any) -> Any:
    similar = outputs @ outputs.T
    return torch.nn.functional.cross_entropy(similar, torch.arange(len(outputs)))


def test_a_contrastive_loss_is_refused_with_the_reason() -> None:
    """One record by itself has nothing to be compared with: its loss is constant."""
    with pytest.raises(InputError, match="compares records with each other"):
        looped(torch.nn.Linear(30, 2), vectors(), lambda outputs, _: contrasted(outputs))


def test_a_contrastive_part_of_a_loss_is_found() -> None:
    """Added to an ordinary loss it does not hide."""

    def loss(outputs: Any, targets: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs, targets) + 0.1 * contrasted(outputs)

    assert found(torch.nn.Linear(30, 2), vectors(), loss)[OTHERS].alarm


class Centered(torch.nn.Module):
    """Inputs less the mean of the batch (`now`), or less a running mean of earlier batches."""

    def __init__(self, now: bool, frozen: bool = False) -> None:
        super().__init__()
        self.layer, self.now, self.frozen = torch.nn.Linear(30, 40), now, frozen
        self.register_buffer("center", torch.zeros(30))

    def forward(self, inputs: Any) -> Any:
        center = inputs.mean(0) if self.now else self.center.clone()
        if not self.frozen and len(inputs):
            self.center.mul_(0.9).add_(0.1 * inputs.detach().mean(0))
        return self.layer(inputs - center if len(inputs) != 1 else inputs)


def test_centering_by_the_batch_is_found() -> None:
    """x - x.mean(0): every record is in everybody's input."""
    assert found(Centered(now=True), vectors(), torch.nn.CrossEntropyLoss())[OTHERS].alarm


def test_a_buffer_that_averages_records_is_found() -> None:
    """The batch acts on later steps through a running mean without noise; a buffer that stays does not."""
    averaging = found(Centered(now=False), vectors(), torch.nn.CrossEntropyLoss())
    assert not averaging[OTHERS].alarm
    assert averaging[STATE].alarm
    assert "center" in averaging[STATE].verdict
    still = found(Centered(now=False, frozen=True), vectors(), torch.nn.CrossEntropyLoss())
    assert not still[STATE].alarm


def mixed_up(model: Any, optimizer: Any, loss: Any) -> Any:
    def step(inputs: Any, targets: Any) -> None:
        other = torch.roll(torch.arange(len(inputs)), 1)
        optimizer.zero_grad()
        outputs = model(0.7 * inputs + 0.3 * inputs[other])
        (0.7 * loss(outputs, targets) + 0.3 * loss(outputs, targets[other])).backward()
        optimizer.step()

    return step


def test_mixup_in_the_step_is_found() -> None:
    """A record is in two rows, and clipping bounds each of them."""
    assert found(torch.nn.Linear(30, 2), vectors(), torch.nn.CrossEntropyLoss(), mixed_up)[OTHERS].alarm


def test_mixup_in_the_loader_is_refused() -> None:
    """The rows of a batch hold more than their own record; noise of their own in the rows is allowed."""

    def mixing(items: list[Any]) -> list[Any]:
        inputs, targets = torch.utils.data.default_collate(items)
        return [0.7 * inputs + 0.3 * inputs.roll(-1, 0), targets]

    def jittered(items: list[Any]) -> list[Any]:
        inputs, targets = torch.utils.data.default_collate(items)
        return [inputs + torch.from_numpy(np.random.normal(size=inputs.shape)).float(), targets]  # noqa: NPY002

    loss = torch.nn.CrossEntropyLoss()
    with pytest.raises(InputError, match="collate_fn"):
        looped(torch.nn.Linear(30, 2), vectors(), loss, loading={"collate_fn": mixing})
    assert not found(torch.nn.Linear(30, 2), vectors(), loss, loading={"collate_fn": jittered})[OTHERS].alarm


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_an_encoder_trained_by_another_optimizer_is_found(kind: str) -> None:
    """Its weights follow the records without noise, and another optimizer is seen to take steps."""
    encoder = torch.nn.Linear(30, 6)
    other = getattr(torch.optim, kind)(encoder.parameters(), lr=0.1)
    before = encoder.weight.detach().clone()

    def own(model: Any, optimizer: Any, loss: Any) -> Any:
        def step(inputs: Any, targets: Any) -> None:
            optimizer.zero_grad()
            other.zero_grad()
            loss(model(encoder(inputs)), targets).backward()
            optimizer.step()
            other.step()

        return step

    class Head(torch.nn.Linear):
        """Takes the encoder's output, or raw records where the probe asks for them."""

        def forward(self, inputs: Any) -> Any:
            return super().forward(inputs if inputs.shape[-1] == 6 else encoder(inputs).detach())

    state = found(Head(6, 2), vectors(), torch.nn.CrossEntropyLoss(), own)[STATE]
    assert state.alarm
    assert kind in state.verdict
    assert torch.equal(before, encoder.weight)


def edited(rate: float, clamp: float = 0.0) -> Any:
    """Steps after which the weights are edited: by the clean gradient, or clamped, which is post-processing."""

    def own(model: Any, optimizer: Any, loss: Any) -> Any:
        def step(inputs: Any, targets: Any) -> None:
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            clean = [p.grad_sample.sum(dim=0) for p in optimizer.params] if rate else []
            optimizer.step()
            with torch.no_grad():
                for p, gradient in zip(optimizer.params, clean, strict=False):
                    p -= rate * gradient
                for p in optimizer.params if clamp else []:
                    p.clamp_(-clamp, clamp)

        return step

    return own


def test_weights_edited_by_hand_are_found_where_they_follow_the_records() -> None:
    """Subtracting a thousandth of the clean gradient is found; clamping what was released is not a finding."""
    loss = torch.nn.CrossEntropyLoss()
    by_hand = found(torch.nn.Linear(30, 2), vectors(), loss, edited(1e-3))[STATE]
    assert by_hand.alarm
    assert "weight" in by_hand.verdict
    assert not found(torch.nn.Linear(30, 2), vectors(), loss, edited(0.0, clamp=0.05))[STATE].alarm


def planting(model: Any, optimizer: Any, loader: Any, loss: Any) -> None:
    loop = probe.TorchLoop(model, optimizer, loader, loss)
    for scale in (1.0, 1e30):
        loop.update(scale * loop.directions, np.random.default_rng(0))
        loop.update_among(scale * loop.directions, 1, np.random.default_rng(0))


def test_probing_leaves_moments_and_gradients_as_they_were() -> None:
    """What Adam remembers would make the first real steps those of planted gradients."""
    torch.manual_seed(0)
    model, optimizer, loader = private(torch.nn.Linear(30, 2), vectors(), optimizer=torch.optim.Adam)
    loss = torch.nn.CrossEntropyLoss()
    planting(model, optimizer, loader, loss)
    assert not optimizer.original_optimizer.state
    assert all(p.grad is None and p.grad_sample is None for p in optimizer.params)
    loss(model(torch.ones(3, 30)), torch.zeros(3, dtype=torch.int64)).backward()
    optimizer.step()
    kept = {k: v.clone() for k, v in optimizer.original_optimizer.state[optimizer.params[0]].items()}
    planting(model, optimizer, loader, loss)
    now = optimizer.original_optimizer.state[optimizer.params[0]]
    assert all(torch.equal(kept[key], now[key]) for key in kept)


def regression(size: int) -> Any:
    torch.manual_seed(5)
    return torch.utils.data.TensorDataset(torch.randn(size, 30), torch.randn(size, 1))


@pytest.mark.parametrize("size", [2, 3, 5, 200])
def test_targets_that_are_numbers_and_tiny_datasets_are_left_alone(size: int) -> None:
    """A squared error averaged over the batch has no common divisor but the batch; labels are not planted."""
    findings = found(torch.nn.Linear(30, 1), regression(size), torch.nn.MSELoss(), batch=min(size, 20))
    assert not any(finding.alarm for finding in findings.values())


def test_an_error_divided_by_the_spread_of_the_batch_is_found() -> None:
    """Normalized errors: the targets of the others decide the scale."""

    def loss(outputs: Any, targets: Any) -> Any:
        spread = 1.0 + (targets.std() if len(targets) > 1 else 0.0)
        return ((outputs - targets) ** 2).mean() / spread

    assert found(torch.nn.Linear(30, 1), regression(200), loss, batch=20)[OTHERS].alarm


def test_a_texts_own_randomness_is_left_alone() -> None:
    """Dropout draws as many numbers whoever is in the batch."""
    model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(30, 2))
    findings = found(model, vectors(), torch.nn.CrossEntropyLoss())
    assert not any(finding.alarm for finding in findings.values())


def test_an_optimizer_of_ones_own_says_what_it_hides() -> None:
    """It is read by how far it moves, so what else changes is not seen, and the report says so."""

    class Own(torch.optim.SGD):
        """Of another module than torch.optim."""

    torch.manual_seed(0)
    data, model = vectors(), torch.nn.Linear(30, 2)
    loader = torch.utils.data.DataLoader(data, batch_size=100, shuffle=True)
    optimizer = Own(model.parameters(), lr=0.1)
    loss = torch.nn.CrossEntropyLoss(reduction="sum")

    def step(inputs: Any, targets: Any) -> None:
        optimizer.zero_grad()
        for one, target in zip(inputs, targets, strict=True):
            gradients = torch.autograd.grad(loss(model(one[None]), target[None]), list(model.parameters()))
            norm = torch.cat([part.reshape(-1) for part in gradients]).norm()
            for p, part in zip(model.parameters(), gradients, strict=True):
                p.grad = (0 if p.grad is None else p.grad) + part * min(1.0, 1.0 / float(norm + 1e-12))
        for p in model.parameters():
            p.grad = (0 if p.grad is None else p.grad) + torch.randn_like(p)
        optimizer.step()

    loop = probe.TorchLoop(model, optimizer, loader, loss, step=step, noise_multiplier=1.0, max_grad_norm=1.0)
    lens = Lens(lambda *_: loop, 200, 20, 0)
    others, state = companion_findings(lens, step_numbers(lens, 20, (2, 20)).at, 20)
    assert not others.alarm
    assert state.verdict.startswith("not seen")

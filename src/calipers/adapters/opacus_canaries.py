"""White-box evidence of canaries in a training with Opacus: every noisy sum against the candidates' gradients.

    watch_gradients(pairs, optimizer, twin, candidates, labels)     # once, after make_private

`twin` is a copy of the model from before `make_private`, of which only the form is used: at every step it runs with the
weights of that moment. If candidate i is in the batch, the noisy sum holds its clipped gradient g_i, and the log
likelihood ratio of that against its absence, all else being equal, is (<sum, g_i> - ||g_i||^2 / 2) / (sigma C)^2. What
others add is the same for both of a pair on average. It costs a gradient of every candidate at every step.
"""

from __future__ import annotations

from typing import Any

from calipers.adapters.opacus_library import torch_module
from calipers.auditing.pairs import Pairs
from calipers.errors import InputError

_AT_ONCE = 256


def watch_gradients(
    pairs: Pairs, optimizer: Any, twin: Any, candidates: Any, labels: Any, loss: Any = None, *, every: int = 1
) -> None:
    """Let `pairs` learn from every noisy sum of `optimizer` from now on, or from one in `every`.

    `candidates` and `labels` are tensors with one row for each of the 2 count candidates, `loss(outputs, labels)` that
    of the training; left out, cross-entropy.
    """
    torch = torch_module("torch")
    names = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    if [p.shape for p in names.values()] != [p.shape for p in optimizer.params]:
        raise InputError("The twin's parameters are not those of the optimizer; copy the model before make_private.")
    if not len(candidates) == len(labels) == 2 * pairs.count:
        raise InputError(f"Expected {2 * pairs.count} candidates with a label each, got {len(candidates)}.")
    criterion = torch.nn.functional.cross_entropy if loss is None else loss
    twin = twin.to(optimizer.params[0].device)

    def one(parameters: Any, record: Any, label: Any) -> Any:
        return criterion(torch.func.functional_call(twin, parameters, (record[None],)), label[None])

    gradients = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0), randomness="same")
    method, step = optimizer.add_noise, [0]

    def add_noise(*arguments: Any, **named: Any) -> Any:
        found = method(*arguments, **named)
        step[0] += 1
        if step[0] % every == 0:
            pairs.learn(_evidence(torch, optimizer, gradients, names, candidates, labels))
        return found

    optimizer.add_noise = add_noise


def _evidence(torch: Any, optimizer: Any, gradients: Any, names: Any, candidates: Any, labels: Any) -> Any:
    """The log likelihood ratio of every candidate in the noisy sum that was just made."""
    parameters = dict(zip(names, (p.detach() for p in optimizer.params), strict=True))
    noisy = torch.cat([p.grad.detach().flatten() for p in optimizer.params])
    norm, noise = float(optimizer.max_grad_norm), float(optimizer.noise_multiplier)
    parts = []
    for rows, answers in zip(candidates.split(_AT_ONCE), labels.split(_AT_ONCE), strict=True):
        found = gradients(parameters, rows.to(noisy.device), answers.to(noisy.device))
        flat = torch.cat([found[name].flatten(1) for name in names], dim=1)
        flat = flat * (norm / flat.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1.0)
        parts.append((flat @ noisy - flat.square().sum(dim=1) / 2) / (noise * norm) ** 2)
    return torch.cat(parts).double().cpu().numpy()

"""A dozen clients train with Flower's simulation, and the record says what that cost each of them.

    pip install 'flwr[simulation]>=1.42' '.[flower]'
    python examples/federated/flower_simulation.py

Each client has 40 points of two classes; the model is a logistic regression. Four of the twelve are drawn in every
round, their updates are clipped on the server and their mean is noised. Every client reports the same weight: with
weights by numbers of examples the noise would be calibrated for the wrong sum.
"""

from __future__ import annotations

import logging

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation

import calipers
from calipers.adapters.flower_watch import FlowerRecord, watch
from calipers.receipts import receipt, verify_receipt

CLIENTS, PER_ROUND, ROUNDS = 12, 4, 10
NOISE_MULTIPLIER, CLIPPING_NORM, DELTA = 2.0, 1.0, 1e-2
"""delta: at most one over the number of clients, and with a dozen clients no small number means anything."""

client_app, server_app = ClientApp(), ServerApp()
records: list[FlowerRecord] = []
accuracies: list[float] = []


def points(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes in two dimensions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    return rng.normal(size=(count, 2)) + 1.5 * (2 * labels[:, None] - 1), labels


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Twenty steps of gradient descent on the client's own points."""
    features, labels = points(int(context.node_config["partition-id"]), 40)
    weights = message.content["arrays"].to_numpy_ndarrays()[0].copy()
    inputs = np.column_stack([features, np.ones(len(features))])
    for _ in range(20):
        weights -= 0.2 * inputs.T @ (1 / (1 + np.exp(-inputs @ weights)) - labels) / len(labels)
    content = {"arrays": ArrayRecord([weights]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)


def central_accuracy(number: int, arrays: ArrayRecord) -> MetricRecord:
    """On points that no client has."""
    features, labels = points(10_000, 2000)
    scores = np.column_stack([features, np.ones(len(features))]) @ arrays.to_numpy_ndarrays()[0]
    accuracies.append(float(np.mean((scores > 0) == labels)))
    return MetricRecord({"accuracy": accuracies[-1]})


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """FedAvg with server-side fixed clipping, watched."""
    # min_train_nodes says how many are drawn; a fraction of the connected clients would tell how many are connected.
    inner = FedAvg(
        fraction_train=0.1, min_train_nodes=PER_ROUND, min_available_nodes=CLIENTS - 1, fraction_evaluate=0.0
    )
    strategy = DifferentialPrivacyServerSideFixedClipping(inner, NOISE_MULTIPLIER, CLIPPING_NORM, PER_ROUND)
    records.append(watch(strategy))
    model = ArrayRecord({"weights": Array(np.zeros(3))})
    strategy.start(grid, model, num_rounds=ROUNDS, train_config=ConfigRecord(), evaluate_fn=central_accuracy)


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.WARNING)
    run_simulation(server_app=server_app, client_app=client_app, num_supernodes=CLIENTS)
    (record,) = records
    for fact, value in record.facts.items():
        print(f"{fact}: {value}")
    print(f"accuracy on held-out points: {accuracies[-1]:.3f}")
    for adjacency in ("add-remove", "zero-out", "substitute"):
        found = record.epsilon(DELTA, adjacency)
        print(f"epsilon at delta = {DELTA:g} for one client, {adjacency}: {found}")
    print(
        f"receipt: {verify_receipt(receipt(record, deltas=[DELTA])).standing.value} by Calipers {calipers.__version__}"
    )

"""The project's own loop, a few steps of it, held against the project's own budget."""

import pytest
import train


@pytest.mark.calipers(epochs=train.EPOCHS)
def test_the_training_keeps_its_budget(calipers_gate):
    """How batches are drawn and how much noise is added is seen, and taken to the length of the real training."""
    engine, model, optimizer, loader = train.build()
    calipers_gate.attach(engine, optimizer, loader)
    train.train(model, optimizer, loader, steps=3)

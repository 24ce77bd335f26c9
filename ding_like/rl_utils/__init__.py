"""The maths of reinforcement learning: pure functions of arrays."""

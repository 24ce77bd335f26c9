"""Env managers: B env columns behind one batched API."""

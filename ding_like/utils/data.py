"""DI-engine's place of the collate functions."""

from ding_like.utils.collate import default_collate, timestep_collate

__all__ = ["default_collate", "timestep_collate"]

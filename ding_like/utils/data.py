"""DI-engine's place of the collate function."""

from ding_like.utils.collate import default_collate

__all__ = ["default_collate"]

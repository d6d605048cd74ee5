"""PyTorch models as graphs: `.pt2` files of torch.export, read without torch; modules and exported programs through it."""

from intaglio.frontends.torch.loading import check, load
from intaglio.frontends.torch.objects import as_module, save_object

__all__ = ["as_module", "check", "load", "save_object"]

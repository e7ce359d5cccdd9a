"""Mixtures of experts: the matrix products of a text depend on the texts that are read beside it."""

from torch import nn
from transformers import PreTrainedModel


def is_mixture(model: nn.Module) -> bool:
    """Return whether the model, or one inside it, sends tokens to experts.

    An expert processes the tokens of all texts that are sent to it, so the shapes of its products are not public.
    """
    parts = (part for part in model.modules() if isinstance(part, PreTrainedModel))
    settings = [setting for part in parts for setting in part.config.get_text_config().to_dict().items()]
    return any("experts" in name and isinstance(value, int) and value > 1 for name, value in settings)

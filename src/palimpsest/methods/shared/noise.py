"""What noise costs."""

from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent


def gaussian(sigma: float) -> DpEvent:
    """What one answer of sensitivity 1 with such noise costs; with none it is not private."""
    return GaussianDpEvent(sigma) if sigma > 0 else NonPrivateDpEvent()

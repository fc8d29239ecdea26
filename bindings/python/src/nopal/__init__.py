"""Probes that a Python program declares while it runs.

    import nopal

    shop = nopal.Provider("shop")
    sale = shop.add_probe("sale", id=int, customer=str)
    shop.load()

    sale.fire(42, "Ada")                        # does nothing while nobody listens
    sale.fire_lazy(lambda: (42, describe()))    # the function runs only while somebody listens

    @nopal.latency("shop")                      # shop:checkout fires how long each call took
    def checkout(cart): ...

Every tracer sees them: ``nopal trace -p PID 'shop:*'``, ``bpftrace -p PID -e 'usdt::shop:sale { ... }'``.
"""

from ._library import LibraryMissing, NopalError
from ._types import Type
from .latency import current_id, latency, new_id
from .provider import Probe, Provider
from .stack import stack

__version__ = "0.1.0"

__all__ = [
    "LibraryMissing",
    "NopalError",
    "Probe",
    "Provider",
    "Type",
    "current_id",
    "latency",
    "new_id",
    "stack",
]

"""A server is killed, a failover of Redis loses acknowledged writes, and each loss is accounted for."""

from .disaster import Disaster
from .faults import Damage, FleetFaults
from .losses import Losses, Signals, account

__all__ = ["Damage", "Disaster", "FleetFaults", "Losses", "Signals", "account"]

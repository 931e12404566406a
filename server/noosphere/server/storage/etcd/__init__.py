"""The coordinator on etcd: for any number of server processes."""

from .access import Access
from .coordinator import EtcdCoordinator, UnfitEtcd

__all__ = ["Access", "EtcdCoordinator", "UnfitEtcd"]

"""The coordinator on etcd: for any number of server processes."""

from .coordinator import EtcdCoordinator, UnfitEtcd

__all__ = ["EtcdCoordinator", "UnfitEtcd"]

"""A Dask cluster of two processes on this machine, whose workers start again however long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def clients_of_two_workers() -> Iterator[Any]:
    """One client, for as long as the iteration lasts.

    Dask gives a worker up for good if it has not come back within 15 seconds. A busy machine may need longer
    to start a process, and a cluster without workers would never end what it was given.
    """
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    import dask

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client

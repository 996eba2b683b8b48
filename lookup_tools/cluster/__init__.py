"""The jobs of `building` on a cluster of dask.distributed; needs `lookup-tools[cluster]`."""

"""Many models on many boards: jobs in processes or on Dask, and a store of results that survives whatever happens to them."""

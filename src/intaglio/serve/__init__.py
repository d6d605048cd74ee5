"""Packages behind the Open Inference Protocol, version 2: REST and gRPC, one process, a bounded queue for each model."""

"""A conformance suite for accelerators: `intaglio accelerators test NAME`."""

from intaglio.conformance.checks import Result, check_accelerator, failures

__all__ = ["Result", "check_accelerator", "failures"]

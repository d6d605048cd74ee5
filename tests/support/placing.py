"""Programs with addresses: as text and back, and with faults planted into their plans."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Value
from intaglio.ir.placement import Address, Region, Slot
from intaglio.ir.text import parse_network, print_graph
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.targets import Target


def at(region: str, offset: int) -> Address:
    return Address(Region.of(region), offset)


def region_of(program: Program, value: Value) -> str:
    """As text; empty where it has no address."""
    address = program.placement.of(value)
    return "" if address is None else str(address.region)


def offset_of(program: Program, value: Value) -> int:
    return program.placement.addresses[value].offset


def move(program: Program, value: Value, to: Address) -> None:
    program.placement = replace(program.placement, addresses={**program.placement.addresses, value: to})


def move_scratch(program: Program, layer: str, to: Address) -> None:
    program.placement = replace(program.placement, scratch={**program.placement.scratch, layer: to})


def move_slot(program: Program, slot: Slot, to: Address) -> None:
    program.placement = replace(program.placement, slots={**program.placement.slots, slot: to})


def memory_text(program: Program) -> str:
    """What the IR file of the stage `memory` says."""
    return print_graph(program.graph, program.choices, program.placement, "memory")


def read_again(text: str, program: Program, target: Target) -> Program:
    """The program of that text, with the addresses it gives."""
    network = parse_network(text, {v.name: v.data for v in program.graph.values() if v.data is not None})
    return lower(network.graph, target, network.choices, given=network.placement)

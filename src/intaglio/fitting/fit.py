"""Will it fit? The needs of a planned program before anything is built.

The arena and the weights are exact. Code, stack and time are guesses, compared with 22 small models on nine cores, as built and
emulated (benchmarks/FIT.md has what they are worth):

    code    bytes per character of a kernel's C, and what is around them: 0.7 for integers; 0.32 for floats, 0.55 without FPU
    stack   512 bytes (88 to 912)
    time    multiply-adds by the core's `cycles_per_mac_int` and `cycles_per_mac_float`, zero wait states
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.fitting.fast_weights import Moved, to_ram
from intaglio.fitting.limits import Needs, elsewhere, weights_beside
from intaglio.fitting.weights import plan_weights
from intaglio.kernels.c_printer import Printer, body_lines, print_kernel
from intaglio.kernels.isa import ISAS
from intaglio.kernels.program import Program
from intaglio.memory.ladder import Peak, Rung, ladder, peak_of
from intaglio.memory.lifetimes import Buffer, find_storage
from intaglio.memory.place import placed_buffers
from intaglio.memory.planner import place_buffers
from intaglio.memory.regions import Room, rooms_of, spread
from intaglio.memory.weights import spread_weights
from intaglio.targets.board import Board
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import Target, find_target

STACK_BYTES = 512
VARIABLES_BYTES = 256
CODE_MARGIN, CODE_AROUND_BYTES = 1.5, 4096  # the estimate may be low; start-up code, memory and mathematics
CODE_PER_INTEGER_CHARACTER, CODE_PER_FLOAT_CHARACTER, CODE_PER_SOFT_CHARACTER = 0.7, 0.32, 0.55
CODE_PER_ROUTINE_CHARACTER = 0.15  # of floats: mostly assembly, a line of it for four bytes
CODE_OF_FIRMWARE_BYTES, CODE_OF_SOFT_FLOATS_BYTES = 400, 1700  # start-up code and application; floats without FPU


@dataclass(frozen=True, slots=True)
class Fit:
    """What a program needs, and why."""

    needs: Needs
    arena_bound_bytes: int  # no plan of these buffers is smaller
    state_bytes: int
    buffers: tuple[Buffer, ...]
    peak: Peak | None
    rungs: tuple[Rung, ...]

    @property
    def ram_bytes(self) -> int:
        return sum(self.needs.ram.values())

    @property
    def flash_bytes(self) -> int:
        return sum(self.needs.flash.values()) + sum(size for _, size in self.needs.weights_elsewhere)

    @property
    def lower_bound_bytes(self) -> int:
        """Of RAM."""
        return self.ram_with(self.arena_bound_bytes)

    @property
    def optimal(self) -> bool:
        return self.needs.arena == self.arena_bound_bytes

    def ram_with(self, arena_bytes: int) -> int:
        """RAM with another arena."""
        return self.ram_bytes - self.needs.arena + arena_bytes


def arena_rooms(program: Program, deployment: Deployment, *, slots: bool) -> tuple[Room, ...]:
    """The memories for arenas, where there are several. That of the variables keeps room for these, for the stack, and for inputs
    and outputs that the application owns (without `slots`)."""
    reserved = 0
    if deployment.board is not None:
        values = [] if slots else [*program.graph.inputs, *program.graph.outputs]
        reserved = STACK_BYTES + VARIABLES_BYTES + sum(v.type.bytes for v in values)
    return rooms_of(deployment.arena_memories, deployment.main("ram"), reserved)


def arena_budget(program: Program, deployment: Deployment, reserve: int) -> int | None:
    """What the limits leave for the arena; `reserve` is for stack and variables."""
    if deployment.ram_bytes is None:
        return None
    return deployment.ram_bytes - (_io_bytes(program) + reserve if deployment.board is not None else 0)


def place_weights(program: Program, deployment: Deployment) -> None:
    """Where the flash of the code is too small for all weights, some go to others. Code is estimated, and given some room more."""
    main, others = deployment.main("flash"), deployment.weights_memories
    if main is None or not others:
        return
    code = round(_code_bytes(program, deployment.board) * CODE_MARGIN) + CODE_AROUND_BYTES if deployment.board is not None else 0
    room = (deployment.flash_bytes or main.bytes) - code if main.may_hold("weights") else 0
    spread_weights(program, room, [Room(m.name, m.bytes) for m in others])


def weights_to_ram(program: Program, deployment: Deployment, reserve: int) -> list[Moved]:
    """`--weights ram`: as much as the limits leave beside the arena."""
    room = arena_budget(program, deployment, reserve)
    if not deployment.weights_ram or room is None:
        return []
    arenas = program.arena_bytes - sum(size for _, size in elsewhere(program.arenas, deployment))
    return to_ram(program, deployment.board, room - arenas)


def needs_of_program(program: Program, deployment: Deployment, code: int | None = None) -> Needs:
    """Before it is built: stack is an estimate, and so is code where its size is not given."""
    weights = plan_weights(program.constants, deployment)
    return Needs(
        weights=0 if deployment.weights_read else weights.size_bytes,
        weights_elsewhere=weights_beside(weights.total_bytes, weights.in_flashes, deployment),
        weights_ram=weights.ram_bytes,
        arena=program.arena_bytes,
        elsewhere=elsewhere(program.arenas, deployment),
        io=_io_bytes(program),
        code=_code_bytes(program, deployment.board) if code is None else code,
        stack=STACK_BYTES,
        on_device=bool(deployment.device),
    )


def _io_bytes(program: Program) -> int:
    """Inputs and outputs that the application owns."""
    graph = program.graph
    fed = {s.input for s in graph.states}
    fed |= {v for stripe in program.stripes for v in stripe.windows}
    callers = [v for n, v in enumerate(graph.inputs) if v not in fed and ("input", n) not in program.placement.slots]
    callers += [v for n, v in enumerate(graph.outputs) if ("output", n) not in program.placement.slots]
    return sum(v.type.bytes for v in callers)


def needs_on_board(program: Program, target: Target, on: Deployment, built: Needs | None = None) -> Needs:
    """Of a program that was planned for the core alone: with its arena in several memories, where one does not suffice, and its
    weights in another flash. `built`: what its firmware needs, where there is one."""
    needs = needs_of_program(program, on, None if built is None else built.code)
    if built is not None:
        needs = replace(needs, code=built.code, data=built.data, static=built.static, stack=built.stack)
    beside = on.weights_memories
    if beside and sum(needs.flash.values()) > (on.flash_bytes or 0) and needs.weights <= sum(m.bytes for m in beside):
        needs = replace(needs, weights=0, weights_elsewhere=((beside[0].name, needs.weights),))
    if program.arenas or sum(needs.main_ram.values()) <= (on.ram_bytes or 0):
        return needs
    storage = find_storage(program, target.alignment, slots=program.has_slots)
    plan = place_buffers(storage.buffers, target.alignment, search=False, apart=storage.apart)
    rooms = arena_rooms(program, on, slots=program.has_slots)
    arenas = spread(program, storage, rooms, target.alignment, plan.bytes)
    return replace(needs, arena=sum(a.bytes for a in arenas), elsewhere=elsewhere(arenas, on)) if arenas else needs


def _code_bytes(program: Program, board: Board | None) -> int:
    floats = {layer.kernel.name for layer in program.layers if layer.node.output.dtype.is_float}
    characters = [(kernel.name in floats, len(print_kernel(kernel))) for kernel in program.kernels]
    seen = Printer(ISAS[program.isa])
    for kernel in program.kernels:
        if kernel.name in floats and kernel.isa == program.isa:
            body_lines(kernel, seen)
    soft = board is not None and find_target(board.core).fpu == "none"
    per_float = CODE_PER_SOFT_CHARACTER if soft else CODE_PER_FLOAT_CHARACTER
    around = (CODE_OF_FIRMWARE_BYTES if board is not None else 0) + (CODE_OF_SOFT_FLOATS_BYTES if soft and floats else 0)
    around += round(sum(len(routine.text) for routine in seen.routines.values()) * CODE_PER_ROUTINE_CHARACTER)
    return around + round(sum(n * (per_float if is_float else CODE_PER_INTEGER_CHARACTER) for is_float, n in characters))


def fit_of(program: Program, target: Target, deployment: Deployment) -> Fit:
    buffers = placed_buffers(program, target)
    storage = find_storage(program, target.alignment, slots=program.has_slots)
    return Fit(
        needs=needs_of_program(program, deployment),
        arena_bound_bytes=program.lower_bound_bytes,
        state_bytes=storage.state_bytes,
        buffers=tuple(buffers),
        peak=peak_of(storage.buffers, target.alignment, storage.apart),
        rungs=ladder(program, target),
    )


def fits(needs: Needs, ram: int | None, flash: int | None) -> bool:
    enough_ram = ram is None or sum(needs.main_ram.values()) <= ram
    return enough_ram and (flash is None or sum(needs.flash.values()) <= flash)


def estimated_cycles(program: Program, target: Target) -> float | None:
    """A first guess; None where the cycles of the core are not known."""
    if not (target.cycles_per_mac_int and target.cycles_per_mac_float):
        return None
    floats = sum(layer.macs for layer in program.layers if layer.node.output.dtype.is_float)
    integers = sum(layer.macs for layer in program.layers) - floats
    return floats * target.cycles_per_mac_float + integers * target.cycles_per_mac_int

"""UARTs of microcontrollers, as the registers that polling needs: the generated driver and the emulator read the same table.

[uart]                            # of a board's file: the one that its USB socket or its header shows
kind = "stm32"
address = 0x40008000

Clock, pins and baud rate differ from board to board and are set up by the user's code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from intaglio.targets.memories import check_fields


@dataclass(frozen=True, slots=True)
class Registers:
    """Offsets and bits. `set`: ready when a bit of the mask is 1, otherwise when all are 0."""

    about: str
    rx_status: int
    rx_mask: int
    rx_set: bool
    rx_data: int
    tx_status: int
    tx_mask: int
    tx_set: bool
    tx_data: int
    enable: tuple[tuple[int, int], ...] = ()  # register and value: all that it takes, where there are no pins to choose
    clear: tuple[int, int] | None = None  # register and value: forget an overrun
    rx_acknowledge: bool = False  # 0 is written to the status before the data is read
    tx_after: bool = False  # the status says that the byte has gone; 0 is written to it before


REGISTERS = {
    # Arm DDI 0479, APB UART; 217: 115200 baud at the 25 MHz of an MPS2
    "cmsdk": Registers("the APB UART of Arm's CMSDK", 0x04, 0x2, True, 0x00, 0x04, 0x1, False, 0x00, ((0x10, 217), (0x08, 3))),
    # RM0432 and others: F0, F3, F7, G, H7, L0, L4, L5, U5, LPUART too
    "stm32": Registers("an STM32 USART or LPUART", 0x1C, 0x20, True, 0x24, 0x1C, 0x80, True, 0x28, clear=(0x20, 0x8)),
    # RM0090 and others: F1, F2, F4, L1
    "stm32f4": Registers("a USART of an STM32F4", 0x00, 0x20, True, 0x04, 0x00, 0x80, True, 0x04),
    # nRF52840 product specification, UART without DMA: RXDRDY, TXDRDY
    "nrf52": Registers(
        "the UART of an nRF52", 0x108, 0x1, True, 0x518, 0x11C, 0x1, True, 0x51C, rx_acknowledge=True, tx_after=True
    ),
    # Arm DDI 0183, UARTFR: RXFE, TXFF
    "pl011": Registers("a PL011", 0x18, 0x10, False, 0x00, 0x18, 0x20, False, 0x00),
}


@dataclass(frozen=True, slots=True)
class Uart:
    kind: str
    address: int

    @property
    def registers(self) -> Registers:
        return REGISTERS[self.kind]


def uart_of(table: object) -> Uart | None:
    """ValueError names the field that is at fault."""
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ValueError("`uart` is not a table: it needs `[uart]` with `kind` and `address`")
    check_fields(table, list(fields(Uart)), "the UART: ")
    made = Uart(**table)
    if made.kind not in REGISTERS:
        raise ValueError(f"the UART: `kind` must be one of {', '.join(REGISTERS)}")
    if not 0 <= made.address < 1 << 32 or made.address % 4:
        raise ValueError("the UART: `address` is not within 32 bits, or no multiple of 4")
    return made

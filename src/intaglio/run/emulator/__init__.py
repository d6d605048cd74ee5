"""Cores without an operating system, emulated: firmware boots, is called, is counted.

    image         an ELF file: what to load, which function is where
    core          what every emulator offers; what is said when the firmware goes astray
    unicorn_core  a library that comes by pip: Cortex-M0+ to M33 and RISC-V
    qemu_core     qemu-system-arm through its debugger's port (gdb), where it is installed; it alone knows the Cortex-M55
    machines      which firmware QEMU has memories for
    counting      how often each basic block ran; counter.c and qemu_plugin.c do it, compiled by native
    device        a package on a core, called like `host.Library`
    measure       instructions and cycles per layer, for `profile`
"""

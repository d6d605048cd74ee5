"""Functions of CMSIS-NN as an accelerator of Intaglio: int8 layers that it computes bit for bit as the model means them.

    export CMSIS_NN_PATH=~/CMSIS-NN          # a checkout of yours; nothing of it is in this plug-in
    intaglio compile kws.tflite --board nucleo-l4r5zi --accelerator cmsis_nn --explain -o kws

There is no hardware behind it: it runs on the core, so its cost is what was measured there (`cost.py`), and the partitioner keeps
layers in Intaglio's own kernels where these are faster. `--accelerator-only qconv,qmatmul` sends them here all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from cmsis_nn import checks
from cmsis_nn.calls import code_of
from cmsis_nn.cost import cost_of
from cmsis_nn.library import find_library
from cmsis_nn.scratch import kind_of
from intaglio.accelerator import Accelerator, Code, Cost, Facts, Is, Layout, Pattern, Region, Target
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QAdd, QConv, QMatMul
from intaglio.ops.quantised_rows import QAveragePool, QSoftmax


class CmsisNn(Accelerator):
    name = "cmsis_nn"
    facts = Facts("functions of CMSIS-NN, from a checkout of yours", alignment=4, layouts=(Layout.NONE, Layout.NHWC))
    patterns = (
        Pattern("conv", Is(QConv), checks.convolution),
        Pattern("dense", Is(QMatMul), checks.dense),
        Pattern("add", Is(QAdd), checks.addition),
        Pattern("max_pool", Is(MaxPool), checks.max_pool),
        Pattern("average_pool", Is(QAveragePool), checks.average_pool),
        Pattern("softmax", Is(QSoftmax), checks.softmax),
    )

    def supports(self, target: Target) -> str | None:
        if target.bare and target.arch != "arm":
            return f"CMSIS-NN is for Cortex-M cores (and hosts, to try it), not for `{target.name}`"
        found = find_library()
        return found if isinstance(found, str) else None

    def cost(self, region: Region, target: Target) -> Cost:
        return cost_of(region, kind_of(target))

    def compile(self, region: Region, target: Target) -> Code:
        return code_of(region, kind_of(target))

    def files(self, target: Target) -> Mapping[str, str]:
        found = find_library()
        if isinstance(found, str):
            raise FileNotFoundError(found)
        return found.files()

"""The stages of a compile, one module each; `pipeline.py` has them in order.

work        what a stage takes and returns: the model on its way
importing   the model file becomes a graph
quantising  a float graph becomes an integer one
variants    one work for each processor that the library is for
optimising  passes rewrite the graph
lowering    every layer gets its kernel
planning    every buffer gets its address, within the limits of the device
packaging   the C project is written
building    libraries, application, firmware, OpenCL programs
finishing   limits are checked, the manifest is written; or the IR file of the last stage
context     what passes know of the request
watch       what is reported while it runs
"""

from intaglio.options.request import STAGES, Request, stage_index
from intaglio.stages.watch import CostRow, Watch

__all__ = ["STAGES", "CostRow", "Request", "Watch", "stage_index"]

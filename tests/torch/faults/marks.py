"""Sets the same mark three times; between the first two, driver memory and a tensor are taken and not given back."""

import mstx
import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY, Runtime

runtime = Runtime()
before = torch.ones(1000, device="npu")
mstx.mark("look here", None)
scratch = runtime.allocate(3 << 20)  # FAULT: HAL
tensor = torch.ones(700_000, device="npu")  # FAULT: PTA
short = torch.ones(900_000, device="npu")
mstx.mark("look here", None)
late = torch.ones(500_000, device="npu")
del short
torch.npu.empty_cache()
if not IS_FAULTY:
    runtime.free(scratch)
    del tensor
    torch.npu.empty_cache()
mstx.mark("look here", None)
runtime.free(scratch) if IS_FAULTY else None

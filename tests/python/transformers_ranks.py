# SPDX-License-Identifier: Apache-2.0
"""transformers_ranks.py FOLDER - one process of test_transformers_parallel.py: loads
each checkpoint FOLDER/NAME/nvfp4 whole, and with its experts shared by all processes,
and prints a line of JSON with the result for each.  Processes communicate by gloo, or
by NCCL if each has its own GPU."""

import datetime
import json
import os
import sys

import torch
import torch.distributed as dist
import transformers
from transformers.distributed import DistributedConfig

import nibblas.transformers as nt
from nibblas import UnsupportedError

IMPLEMENTATIONS = ("auto", "all_to_all", "nibblas")
ON_GPUS = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda",
                      int(os.environ["LOCAL_RANK"])) if ON_GPUS else torch.device("cpu")
# A GPU multiplies activations of 16 bits.
DTYPES = (torch.bfloat16,) if ON_GPUS else (torch.float32, torch.bfloat16)


def say(**what):
    # One write a line: the processes share a pipe.
    os.write(1, (json.dumps(what) + "\n").encode())


def logits(model, x):
    with torch.no_grad():
        y = model(x).logits
    return y.full_tensor() if hasattr(y, "full_tensor") else y


def load(path, dtype, **how):
    return nt.from_pretrained(path, dtype=dtype,
                              distributed_config=DistributedConfig(**how))


def run(folder, name, dtype):
    path = os.path.join(folder, name, "nvfp4")
    x = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(1))
    x = x.to(DEVICE)
    # 3 tokens are one for the last process, 1 is none.
    inputs = x, x[:1, :3], x[:1, :1]
    want = [logits(nt.from_pretrained(path, dtype=dtype).to(DEVICE), x) for x in inputs]
    # Only ours promises bits in bf16: a partial sum that is rounded elsewhere may send
    # a token to other experts.
    for how in IMPLEMENTATIONS if dtype == torch.float32 else ("nibblas",):
        model = load(path, dtype, tp_size=2, ep_size=2, ep_implementation=how)
        got = [logits(model, x) for x in inputs]
        errors = [float((y - w).float().norm() / w.float().norm())
                  for y, w in zip(got, want)]
        local = [x.to_local().shape[0] for x in model.parameters()
                 if hasattr(x, "to_local") and x.dtype == torch.uint8]
        say(case="run", name=name, dtype=str(dtype), how=how, device=DEVICE.type,
            errors=errors,
            same_bits=all(map(torch.equal, got, want)), local=local,
            of=len(nt.report(model).rows))


def refuse(path):
    for how in ({"tp_size": 2}, {"fsdp_size": 2}):
        try:
            load(path, torch.float32, **how)
            say(case="refuse", how=list(how), error=None)
        except UnsupportedError as error:
            say(case="refuse", how=list(how), error=str(error))

def main(folder):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if ON_GPUS:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl" if ON_GPUS else "gloo",
                            timeout=datetime.timedelta(seconds=120))
    names = sorted(os.listdir(folder))
    for name in names:
        for dtype in DTYPES:
            run(folder, name, dtype)
    refuse(os.path.join(folder, names[0], "nvfp4"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

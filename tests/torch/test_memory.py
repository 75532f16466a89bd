"""Memory as the framework sees it agrees with what the device really gave."""

import ctypes
import os
import subprocess
from pathlib import Path

import torch
from programs import run_code
from truth import live_bytes

TOOL = r"""
#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"
static mstxDomainHandle_t create(const char *name) { (void)name; return (mstxDomainHandle_t)0x10; }
static mstxMemHeapHandle_t heap(mstxDomainHandle_t domain, mstxMemHeapDesc_t const *desc)
{
    (void)domain;
    (void)desc;
    return 0;
}
static void regions(mstxDomainHandle_t domain, mstxMemRegionsRegisterBatch_t const *desc) { (void)domain; (void)desc; }
int InitInjectionMstx(mstxGetModuleFuncTableFunc get)
{
    mstxFuncTable domain, memory;
    unsigned size;
    if (get(MSTX_API_MODULE_CORE_DOMAIN, &domain, &size) || get(MSTX_API_MODULE_CORE_MEM, &memory, &size)) return 1;
    *domain[1] = (mstxFuncPointer)create;
    *memory[1] = (mstxFuncPointer)heap;
    *memory[3] = (mstxFuncPointer)regions;
    return 0;
}
"""


def test_reserved_memory_is_what_the_driver_gave():
    output, entries = run_code(
        """
        import torch, torch_npu
        kept = [torch.empty(size, device="npu") for size in (10, 1 << 20, 5 << 20, 40 << 20)]
        del kept[1]
        torch.npu.synchronize()
        free, total = torch.npu.mem_get_info()
        print(torch.npu.memory_reserved(), total - free, total)
        import os; os._exit(0)
        """,
        STANDIN_MEMORY_BYTES="1G",
    )
    reserved, used, total = map(int, output.split())
    assert reserved == used == live_bytes(entries)
    assert total == 1 << 30


def test_without_caching_every_tensor_is_one_block():
    _, entries = run_code(
        """
        import torch, torch_npu
        torch.npu.set_device(0)
        for size in (1000, 2000, 3000):
            torch.empty(size, dtype=torch.uint8, device="npu")
            torch.npu.synchronize()
        """,
        PYTORCH_NO_NPU_MEMORY_CACHING="1",
    )
    sizes = [entry.size for entry in entries if entry.kind == "alloc" and entry.device == 0]
    assert len(sizes) == 3 and sizes == sorted(sizes) and sizes[0] >= 1000
    assert live_bytes(entries) == 0


def test_pool_messages_follow_the_allocator(tmp_path):
    source, library = tmp_path / "tool.c", tmp_path / "libascend_kernel_hook.so"
    source.write_text(TOOL)
    include = os.path.join(os.environ["ASCEND_HOME_PATH"], "include")
    subprocess.run(["gcc", "-shared", "-fPIC", "-I", include, source, "-o", library], check=True)
    output, entries = run_code(
        """
        import torch, torch_npu
        kept = [torch.empty(size, device="npu") for size in (10, 1 << 20, 5 << 20)]
        del kept[1]
        torch.npu.synchronize()
        print(torch.npu.memory_allocated(), torch.npu.memory_reserved())
        import os; os._exit(0)
        """,
        LD_PRELOAD=str(library),
    )
    allocated, reserved = map(int, output.split())
    names = {entry.text for entry in entries if entry.kind == "domain_create"}
    # The name that releases before 2.6 use is the older one.
    assert names & {"ptaCaching", "msleaks"}
    regions = {}
    for entry in entries:
        if entry.kind == "region_register":
            regions[entry.address] = entry.size
        elif entry.kind == "region_unregister":
            del regions[entry.address]
    assert sum(regions.values()) == allocated
    heaps = [entry.size for entry in entries if entry.kind == "heap_register"]
    assert heaps[-1] == reserved


def test_several_devices_and_copies_between_them():
    assert torch.npu.device_count() >= 2
    first = torch.arange(1000, dtype=torch.float32).to("npu:0")
    second = first.to("npu:1")
    assert second.device.index == 1
    assert torch.equal(second.cpu(), torch.arange(1000, dtype=torch.float32))
    torch.npu.set_device(1)
    try:
        assert torch.npu.current_device() == 1
        assert float((torch.ones(5, device="npu") + 1).sum()) == 10
    finally:
        torch.npu.set_device(0)


def test_pinned_memory_and_copies_that_do_not_wait():
    host = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    assert host.is_pinned()
    device = host.to("npu", non_blocking=True)
    back = torch.empty_like(host).pin_memory()
    back.copy_(device * 2, non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(back, torch.arange(1 << 20, dtype=torch.float32) * 2)


class CardMemory(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint64),
        ("frequency", ctypes.c_uint32),
        ("used", ctypes.c_uint64),
        ("temperature", ctypes.c_int32),
        ("bandwidth", ctypes.c_uint32),
    ]


class ProcessMemory(ctypes.Structure):
    _fields_ = [("process", ctypes.c_int32), ("bytes", ctypes.c_uint64)]


def test_device_management_sees_all_processes(tmp_path):
    output, _ = run_code(
        """
        import os, subprocess, sys
        import torch, torch_npu
        own = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
        code = "import torch, torch_npu; x = torch.empty(128 << 20, dtype=torch.uint8, device='npu'); "
        code += "print('ready', flush=True); input()"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        sys.path.insert(0, os.environ["TESTS"])
        from test_memory import CardMemory, ProcessMemory
        import ctypes
        dcmi = ctypes.CDLL("libdcmi.so")
        assert dcmi.dcmi_init() == 0
        card, processes, count = CardMemory(), (ProcessMemory * 64)(), ctypes.c_int()
        assert dcmi.dcmi_get_device_hbm_info(0, 0, ctypes.byref(card)) == 0
        assert dcmi.dcmi_get_npu_proc_mem_info(0, 0, processes, ctypes.byref(count)) == 0
        held = {entry.process: entry.bytes for entry in processes[:count.value]}
        free, total = torch.npu.mem_get_info()
        assert set(held) == {os.getpid(), child.pid}, held
        assert held[os.getpid()] == torch.npu.memory_reserved()
        assert held[child.pid] >= 128 << 20
        assert total - free == sum(held.values())
        assert card.used == -(-sum(held.values()) // (1 << 20)) and card.size == total >> 20
        child.communicate("")
        print("ok")
        """,
        TESTS=os.path.dirname(__file__),
    )
    assert output.rstrip() == "ok"


def test_the_python_module_for_marks():
    _, entries = run_code(
        """
        import mstx
        mstx.mark("hello")
        number = mstx.range_start("step start")
        mstx.range_end(number)
        mstx.mark("inside", domain="mine")
        """
    )
    seen = [(entry.kind, entry.text) for entry in entries if entry.library == "ms_tools_ext"]
    assert seen == [
        ("mark", "hello"),
        ("range_start", "step start"),
        ("range_end", None),
        ("domain_create", "mine"),
        ("domain_mark", "inside"),
    ]


def test_of_many_segments_some_are_told_and_the_others_added_up(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "python")
    from msmemscope._torch.refusal import bounded

    streams, kinds = (7, 8), (0, 1)
    segments = [[64 * n, 20, n, n // 2, streams[n % 2], kinds[n % 2]] for n in range(100)]
    told = bounded([*segments], most=10)
    assert [segment[0] for segment in told[:10]] == [64 * n for n in range(99, 89, -1)] and len(told) == 12
    assert {(address, *rest) for address, _, _, _, *rest in told[10:]} == {(0, 7, 0), (0, 8, 1)}
    for column in (1, 2):
        assert sum(segment[column] for segment in told) == sum(segment[column] for segment in segments)
    assert max(segment[3] for segment in told[10:]) == 89 // 2

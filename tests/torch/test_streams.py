"""Work is asynchronous, ordered by streams and events, and memory waits for it as on a card."""

import ctypes
import threading

import torch
from programs import run_code

Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Gate:
    """Work that keeps a stream busy until it is opened."""

    def __init__(self, stream):
        torch.npu.synchronize()
        self.event = threading.Event()
        self.function = Callback(lambda _: self.event.wait())
        runtime = ctypes.CDLL("libruntime.so")
        runtime.standinSubmit.argtypes = [ctypes.c_void_p, Callback, ctypes.c_void_p]
        assert runtime.standinSubmit(stream.npu_stream, self.function, None) == 0

    def open(self):
        self.event.set()


def test_work_waits_in_its_stream_and_others_go_on():
    busy, other = torch.npu.Stream(), torch.npu.Stream()
    x = torch.ones(1000, device="npu")
    gate = Gate(busy)
    with torch.npu.stream(busy):
        y = x + 1
        done = torch.npu.Event()
        done.record()
    with torch.npu.stream(other):
        z = x + 2
    other.synchronize()
    assert float(z.sum()) == 3000
    assert not done.query()
    assert not busy.query()
    gate.open()
    done.synchronize()
    assert done.query() and float(y.sum()) == 2000


def test_a_stream_waits_for_an_event_of_another():
    producer, consumer = torch.npu.Stream(), torch.npu.Stream()
    x = torch.zeros(1000, device="npu")
    gate = Gate(producer)
    with torch.npu.stream(producer):
        x += 5
        ready = torch.npu.Event()
        ready.record()
    with torch.npu.stream(consumer):
        consumer.wait_event(ready)
        y = x * 2
        late = torch.npu.Event()
        late.record()
    assert not late.query()
    gate.open()
    torch.npu.synchronize()
    assert float(y.sum()) == 10000


def test_a_block_in_use_by_another_stream_is_not_reused():
    side = torch.npu.Stream()
    x = torch.ones(1 << 20, device="npu")
    address = x.data_ptr()
    gate = Gate(side)
    with torch.npu.stream(side):
        y = x + 1
    x.record_stream(side)
    del x
    new = torch.empty(1 << 20, device="npu")
    assert new.data_ptr() != address
    new.zero_()
    gate.open()
    torch.npu.synchronize()
    assert float(y.sum()) == 2 * (1 << 20)
    del new
    again = [torch.empty(1 << 20, device="npu") for _ in range(2)]
    assert address in {tensor.data_ptr() for tensor in again}


def test_a_copy_that_does_not_wait_arrives_later():
    device = torch.ones(1000, device="npu")
    host = torch.zeros(1000).pin_memory()
    gate = Gate(torch.npu.current_stream())
    host.copy_(device, non_blocking=True)
    assert float(host.sum()) == 0
    gate.open()
    torch.npu.synchronize()
    assert float(host.sum()) == 1000


def test_streams_that_nobody_orders_race():
    busy, other = torch.npu.Stream(), torch.npu.Stream()
    x = torch.zeros(1000, device="npu")
    gate = Gate(busy)
    with torch.npu.stream(busy):
        x += 1
    with torch.npu.stream(other):
        early = x.clone()
    other.synchronize()
    gate.open()
    torch.npu.synchronize()
    assert float(early.sum()) == 0 and float(x.sum()) == 1000


def test_blocking_launches_leave_nothing_to_wait_for():
    output, _ = run_code(
        """
        import torch, torch_npu
        x = torch.ones(300, 300, device="npu")
        side = torch.npu.Stream()
        for _ in range(20):
            y = x @ x
            assert torch.npu.current_stream().query()
            with torch.npu.stream(side):
                z = y @ x
            assert side.query()
        print(float(z[0, 0]))
        """,
        ASCEND_LAUNCH_BLOCKING="1",
    )
    assert float(output) == 300 * 300


def test_events_measure_time():
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    torch.ones(512, 512, device="npu") @ torch.ones(512, 512, device="npu")
    end.record()
    torch.npu.synchronize()
    assert start.elapsed_time(end) >= 0

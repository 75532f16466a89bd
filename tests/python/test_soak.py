"""Long use costs no memory: everything that is recorded goes to the file and nowhere else."""

PROGRAM = """
    import gc, sys, threading
    import msmemscope
    import msmemscope.describe as describe
    import small_framework as framework

    msmemscope.config(events="alloc,free,launch,access,traceback", call_stack="python:10,c:5", output="out")
    framework.begin()
    msmemscope.start()

    @describe.describer(owner="decorated")
    def labelled(depth):
        return framework.allocate(4096) if depth == 0 else labelled(depth - 1)

    def on_another_thread():
        framework.acl.aclrtSetDevice(0)
        framework.free(labelled(2))

    def work(rounds):
        for number in range(rounds):
            with describe.describer(owner="block"), msmemscope.RecordFunction("work"):
                framework.free(labelled(number % 7))
            framework.mark(f"mark {number % 5}")
            msmemscope.step()
            if number % 10 == 0:
                msmemscope.stop(finish=False)
                msmemscope.config(events="alloc,free,launch,access,traceback", call_stack="python:10,c:5")
                msmemscope.start()
                thread = threading.Thread(target=on_another_thread)
                thread.start()
                thread.join()

    def measured():
        gc.collect()
        with open("/proc/self/status") as status:
            (resident,) = [int(line.split()[1]) for line in status if line.startswith("RssAnon")]
        with open("/proc/self/maps") as maps:
            mapped = sum("recording.trace" in line for line in maps)
        return resident, sys.getallocatedblocks(), len(gc.get_objects()), mapped, threading.active_count()

    work(2000)
    before = measured()
    work(20000)
    after = measured()
    msmemscope.stop(finish=False)
    print("measured", *(later - earlier for earlier, later in zip(before, after)))
"""


def test_no_growth(run):
    result = run(PROGRAM)
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("measured")]
    resident_kib, blocks, objects, mapped, threads = (int(number) for number in line.split()[1:])
    (trace,) = result.files("recording.trace")
    assert trace.stat().st_size > 1 << 20, "a lot was recorded"
    # Arenas of the allocator take and give back up to 600 KiB, however long the program runs; a single word kept
    # per event, or a hundred bytes per round, would be more than two megabytes.
    assert resident_kib < 1024
    # Caches of the interpreter make a few hundred blocks come and go, however long the program runs; something
    # kept per event would be thousands.
    assert blocks < 600
    assert objects < 50
    assert mapped <= 1, "full parts of the recording are let go"
    assert threads == 0
    assert "Exception" not in result.stderr

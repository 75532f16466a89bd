"""Snapshots of device memory."""


def test_all_devices_by_default(run):
    one = run(
        """
        import msmemscope
        import small_framework as framework
        framework.begin()
        msmemscope.config(output="out")
        msmemscope.take_snapshot()
        msmemscope.take_snapshot(device_mask=1)
        msmemscope.take_snapshot(device_mask=[0, 1], name="list")
        msmemscope.take_snapshot(device_mask=(0, 1), name="test_tuple")
        try:
            msmemscope.take_snapshot(device_mask=[0, 3])
        except ValueError as error:
            print(error)
        """,
        environment={"STANDIN_DEVICES": "3"},
    )
    seen = [(row["Name"], row["Device Id"]) for row in one.rows("SNAPSHOT")]
    assert seen == [
        ("Memory Snapshot", "0"),
        ("Memory Snapshot", "1"),
        ("Memory Snapshot", "2"),
        ("Memory Snapshot", "1"),
        ("list", "0"),
        ("list", "1"),
        ("test_tuple", "0"),
        ("test_tuple", "1"),
    ]
    assert one.stdout == "device_mask: there is no device 3, only 0 to 2\n"
    attributes = one.rows("SNAPSHOT")[0].attributes
    assert int(attributes["total"]) == 64 << 30
    assert 0 < int(attributes["free"]) <= int(attributes["total"])


def test_around_code(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        framework.begin()
        msmemscope.config(output="out")
        with msmemscope.TakeSnapshot(device_mask=0, name="block"):
            framework.allocate(1 << 30)
        @msmemscope.TakeSnapshot(device_mask=0, name="function")
        def function():
            raise KeyError
        try:
            function()
        except KeyError:
            pass
    """)
    rows = one.rows("SNAPSHOT")
    assert [row["Name"] for row in rows] == ["block Start", "block End", "function Start", "function End"]
    free = [int(row.attributes["free"]) for row in rows]
    assert free[0] - free[1] >= 1 << 30


def test_the_place_is_settled_by_the_first_call(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        framework.begin()
        msmemscope.config(output="out")
        msmemscope.take_snapshot(device_mask=0)
        msmemscope.config(output="elsewhere")
        msmemscope.take_snapshot(device_mask=0)
    """)
    assert len(one.rows("SNAPSHOT")) == 2
    assert not (one.directory / "elsewhere").exists()


def test_around_a_coroutine_or_generator_as_a_whole(run):
    one = run("""
        import asyncio
        import msmemscope
        import small_framework as framework
        framework.begin()
        msmemscope.config(output="out")
        @msmemscope.TakeSnapshot(device_mask=0, name="coroutine")
        async def coroutine():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        asyncio.run(coroutine())
        @msmemscope.TakeSnapshot(device_mask=0, name="generator")
        def generator():
            yield from range(3)
        assert list(generator()) == [0, 1, 2]
        @msmemscope.TakeSnapshot(device_mask=0, name="both")
        async def both():
            for number in range(3):
                yield number
        async def main():
            return [number async for number in both()]
        assert asyncio.run(main()) == [0, 1, 2]
    """)
    kinds = ("coroutine", "generator", "both")
    assert [row["Name"] for row in one.rows("SNAPSHOT")] == [
        f"{kind} {word}" for kind in kinds for word in ("Start", "End")
    ]

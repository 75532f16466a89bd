"""In a notebook: cells of a kernel that goes on, driven as a notebook's front end does it."""

import json

#: Sends cells to a fresh kernel; prints what each of them printed.
FRONT_END = """
    import json
    from pathlib import Path
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    told = []
    try:
        for cell in json.loads(Path("cells.json").read_text()):
            streams = {"stdout": "", "stderr": "", "error": ""}

            def take(message):
                content = message["content"]
                if message["msg_type"] == "stream":
                    streams[content["name"]] += content["text"]
                elif message["msg_type"] == "error":
                    streams["error"] = content["evalue"]

            client.execute_interactive(cell, output_hook=take, timeout=300)
            told.append(streams)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    print(json.dumps(told))
"""


def run_cells(run, *cells):
    """Runs cells one after the other; gives what they printed and what was recorded."""
    result = run(FRONT_END, files={"cells.json": json.dumps(cells)})
    told = json.loads(result.stdout.splitlines()[-1])
    assert [cell["error"] for cell in told] == [""] * len(cells), told
    return told, result


def test_cells_record_without_restarting_the_kernel(run):
    told, result = run_cells(
        run,
        "import msmemscope, small_framework as framework\nframework.begin()",
        'msmemscope.config(events="alloc,free", call_stack="python:8", output="out")\nmsmemscope.start()',
        "pool = framework.Pool()\n\ndef keep():\n    return pool.block(1 << 20)\n\nfirst = keep()",
        "msmemscope.stop()\nprint(len(list(msmemscope.recording_directory().rglob('*.csv'))))",
        "unseen = framework.allocate(3 << 20)",
        "with msmemscope.recording(), msmemscope.describe.describer(owner='second'):\n    second = pool.block(2 << 20)",
    )
    assert told[3]["stdout"] == "1\n", "results are there when the cell ends"
    assert "Results in" in told[3]["stderr"], "and the cell says where"
    blocks = result.rows("MALLOC", "PTA")
    assert [int(row.attributes["size"]) >> 20 for row in blocks] == [1, 2]
    frames = blocks[0]["Call Stack(Python)"]
    assert "keep" in frames and "ipykernel_" in frames, frames
    assert len(result.files("memscope_dump_*.csv")) == 1, "later cells continue the same files"
    driver = [int(row.attributes["size"]) >> 20 for row in result.rows("MALLOC", "HAL")]
    assert 3 in driver, "what is alive when recording begins again is known"


def test_a_mistake_in_a_cell_leaves_the_kernel_usable(run):
    told, result = run_cells(
        run,
        "import msmemscope",
        'try:\n    msmemscope.config(events="nonsense")\nexcept ValueError as error:\n    print(error)',
        'msmemscope.config(output="out", events="traceback")\nmsmemscope.start()',
        "def work():\n    return sum(range(10))\n\nwork()",
        "msmemscope.stop()",
    )
    assert "nonsense" in told[1]["stdout"]
    assert any("work" in call for call in result.calls())

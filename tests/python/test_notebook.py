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
            streams = {"stdout": "", "stderr": "", "error": "", "html": "", "plain": "", "result": ""}

            def take(message):
                content = message["content"]
                if message["msg_type"] == "stream":
                    streams[content["name"]] += content["text"]
                elif message["msg_type"] == "error":
                    streams["error"] = content["evalue"]
                elif message["msg_type"] == "display_data":
                    streams["html"] += content["data"].get("text/html", "")
                    streams["plain"] += content["data"].get("text/plain", "")
                elif message["msg_type"] == "execute_result":
                    streams["result"] += content["data"].get("text/plain", "")

            client.execute_interactive(cell, output_hook=take, timeout=300)
            told.append(streams)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    print(json.dumps(told))
"""


def run_cells(run, *cells, errors=None):
    """Runs cells one after the other; gives what they printed and what was recorded."""
    result = run(FRONT_END, files={"cells.json": json.dumps(cells)})
    told = json.loads(result.stdout.splitlines()[-1])
    assert [cell["error"] for cell in told] == (errors or [""] * len(cells)), told
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
    assert told[3]["stderr"].startswith("[msmemscope] "), told[3]
    assert told[3]["stderr"].count("\n") == 1 and "Report: out/msmemscope_" in told[3]["stderr"], "in one line"
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


#: Asks the driver from the cell itself, so that the cell is the innermost line of the program.
BEGIN = """
import ctypes
import msmemscope, small_framework as framework
framework.begin()
malloc, free = framework.acl.aclrtMallocAlign32, framework.acl.aclrtFree
blocks = [ctypes.c_void_p() for _ in range(9)]
def place(index):
    return ctypes.byref(blocks[index])
MEBIBYTE = ctypes.c_size_t(1 << 20)
"""


def test_a_leak_is_told_in_one_line_with_its_cell(run):
    told, _ = run_cells(
        run,
        BEGIN,
        'msmemscope.config(events="alloc,free", call_stack="python:8", output="out")\nmsmemscope.start()',
        "for index in range(7):\n    malloc(place(index), MEBIBYTE, 0)\n    msmemscope.step()",
        "msmemscope.stop()",
    )
    line = told[3]["stderr"]
    assert line.startswith("[msmemscope] Leak: ") and line.count("\n") == 1, line
    assert "In [3]:2" in line and "ipykernel_" not in line, line


def test_the_magic_shows_what_a_cell_did(run):
    told, _ = run_cells(
        run,
        BEGIN,
        "%%memscope output=out events=alloc,free call_stack=python:8\nmalloc(place(0), MEBIBYTE, 0)\n"
        "malloc(place(1), MEBIBYTE, 0)\nfree(blocks[1])\n'<value>'",
        "%%memscope\n1 + 1",
        "%%memscope nonsense\n1",
        "%%memscope\nmalloc(place(2), MEBIBYTE, 0)\n1 / 0",
        "msmemscope._internal.state() == msmemscope._internal.ON",
        errors=["", "", "", "%%memscope takes settings as key=value, not 'nonsense'", "division by zero", ""],
    )
    page = told[1]["html"]
    assert told[1]["result"] == "'<value>'", "the value of the last expression is that of the cell"
    assert "Device 0, driver: peak 2.0 MiB (0 B before the cell, 1.0 MiB of the cell kept)" in page, page
    assert "In [2]:2 " in page and "In [2]:3 " in page, "lines are counted as in the notebook"
    assert "<svg" in page and "<polyline points=" in page
    assert "device 0, driver: peak 2.0 MiB" in told[1]["plain"]
    assert told[2]["result"] == "2" and "peak 1.0 MiB (1.0 MiB before the cell, 0 B of" in told[2]["html"], told[2]
    assert "peak 2.0 MiB (1.0 MiB before the cell, 1.0 MiB of" in told[4]["html"], "also of a cell that failed"
    assert told[5]["result"] == "False", "recording ends with the cell"

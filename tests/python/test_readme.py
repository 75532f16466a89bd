"""README shows what `make demo` prints. After a change of the reports: UPDATE_GOLDEN=1, and look at the difference."""

import os
import re
import subprocess

from running import ROOT, TIME_LIMIT_SECONDS

README = ROOT / "README.md"
#: How much of it README shows.
LINES_SHOWN = 21
ELLIPSIS = "..."
BLOCK = re.compile(r"(?<=^```\n)\$ msmemscope --call-stack.*?(?=^```$)", re.MULTILINE | re.DOTALL)


def masked(line):
    """A line without process ids and times, which differ from run to run."""
    return re.sub(r"Process \d+|in [\d.]+ [mµn]?s\b", "_", line)


def shown(output):
    """The first lines of an output as README shows them: without its files, and of lines alike only the first."""
    lines = output[output.index("$ msmemscope") :].splitlines()
    # As root there is a warning; where the files are depends on the machine.
    lines = [line for line in lines if not line.startswith(("[msmemscope]", "Results in", "  device_0/dump/"))]
    kept = []
    before = None
    for line in (line.rstrip() for line in lines):
        alike = re.sub(r"0x[0-9a-f]+|\d+", "_", line)
        if not line or alike != before or "0x" not in line:
            kept.append(line)
        elif kept[-1] != ELLIPSIS:
            kept.append(ELLIPSIS)
        before = alike
    return kept[:LINES_SHOWN]


def test_the_demo_prints_what_readme_shows():
    demo = subprocess.run(
        ["scripts/demo"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIME_LIMIT_SECONDS
    )
    output = demo.stdout.decode()
    assert demo.returncode == 0, output
    printed = shown(output)
    text = README.read_text()
    if os.environ.get("UPDATE_GOLDEN"):
        text = BLOCK.sub(lambda _: "\n".join(printed) + "\n", text, count=1)
        README.write_text(text)
    (block,) = BLOCK.findall(text)
    assert [masked(line) for line in block.splitlines()] == [masked(line) for line in printed]
    assert str(ROOT) not in block

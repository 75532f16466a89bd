"""What commands print with `--json` is what docs/schema says, key by key.

The schemas leave room for new keys, as readers have to. Here every key that they do not know is an error.
"""

import json
import subprocess

import pytest
from running import PROGRAM, ROOT, run_program
from test_docs import PROGRAM as REFERENCE
from test_docs_commands import TRAINING, dump

jsonschema = pytest.importorskip("jsonschema")

SCHEMAS = ROOT / "docs" / "schema"
WITH_JSON = {name for name, options in REFERENCE.commands.items() if "--json" in options} - {"run"}


def closed(schema):
    """The same without room for other keys."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: closed(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        parts["additionalProperties"] = False
    return parts


def problems(command, printed):
    """What the schema of a command says against what was printed."""
    schema = json.loads((SCHEMAS / f"{command}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    errors = jsonschema.Draft202012Validator(closed(schema)).iter_errors(printed)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A directory with recordings of a job that leaks, and with dumps of operators."""
    directory = tmp_path_factory.mktemp("results")
    (directory / "a.csv").write_text(dump())
    code = 'import msmemscope\nmsmemscope.config(output="out")\nmsmemscope.start()\n' + TRAINING
    ask = f"[{str(PROGRAM)!r}, 'ctl', str(os.getpid()), 'status', '--json']"
    asks = f"import os, subprocess\nwith open('ctl.json', 'w') as file:\n    subprocess.run({ask}, stdout=file)\n"
    run_program(directory / "job", code + asks)
    return directory


COMMANDS = {
    "analyze": ["job/out"],
    "check": ["job/out", "--no-leaks", "--max-peak=1KiB", "--max-inefficient=5%"],
    "compare": ["a.csv", "a.csv"],
    "info": ["job/out"],
    "list": ["job/out"],
    "top": ["job/out"],
    "watch-report": ["job/out"],
    "finish": ["job/out"],
    "recover": ["job/out"],
    "fleet": ["job/out"],
    "replay": ["job/out"],
    "doctor": [],
    "clean": ["job/out", "--keep=9"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_printed_is_what_the_schema_says(command, results):
    completed = subprocess.run([PROGRAM, command, *COMMANDS[command], "--json"], cwd=results, capture_output=True)
    printed = json.loads(completed.stdout)
    assert problems(command, printed) == []
    assert problems(command, {**printed, "surprise": 1}) != []


def test_a_running_job_answers_what_the_schema_says(results):
    assert problems("ctl", json.loads((results / "job" / "ctl.json").read_text())) == []


def test_every_command_has_its_schema():
    assert {path.stem for path in SCHEMAS.glob("*.json")} == WITH_JSON == set(COMMANDS) | {"ctl"}
    page = (ROOT / "docs" / "json.md").read_text()
    assert not [command for command in WITH_JSON if f"(schema/{command}.json)" not in page]

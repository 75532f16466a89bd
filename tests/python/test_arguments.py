"""Wrong arguments: the exception, its text, and that nothing has changed afterwards."""

import msmemscope
import pytest
from msmemscope import _internal, describe
from msmemscope.exceptions import AddressError, TextError
from msmemscope.exceptions import UnsupportedTargetError as Unsupported

CONFIG = [
    ({"level": 0}, TypeError, "Value for argument 'level' must be a string or a list of strings (use quotes)"),
    ({"events": ["alloc", 1]}, TypeError, "Value for argument 'events' must be a string or a list of strings"),
    ({"watch": None}, TypeError, "Value for argument 'watch' must be a string or a list of strings (use quotes)"),
    ({"output": ["a", "b"]}, TypeError, "Value for argument 'output' must be a string (use quotes)"),
    ({"events": ["alloc", "fre"]}, ValueError, "did you mean 'free'?"),
    ({"levle": "op"}, ValueError, "did you mean 'level'?"),
    ({"": "x"}, ValueError, "unknown key"),
    ({"level": "operators"}, ValueError, "invalid value 'operators' for level"),
    ({"events": "alloc,fre"}, ValueError, "did you mean 'free'?"),
    ({"device": ""}, ValueError, "device"),
    ({"device": "npu:32"}, ValueError, "npu:32"),
    ({"device": "gpu"}, ValueError, "gpu"),
    ({"call_stack": "c:1001"}, ValueError, "1001"),
    ({"call_stack": "python:x"}, ValueError, "python:x"),
    ({"steps": "0"}, ValueError, "steps"),
    ({"steps": "1,2,3,4,5,6"}, ValueError, "steps"),
    ({"data_format": "xml"}, ValueError, "xml"),
    ({"data_format": ""}, ValueError, "data_format"),
    ({"analysis": "leak"}, ValueError, "did you mean 'leaks'?"),
    ({"analysis": "oom:0"}, ValueError, "oom:0"),
    ({"watch": "a,b,c,d"}, ValueError, "watch"),
    ({"output": ""}, ValueError, "output"),
    ({"output": "place\udcff"}, ValueError, "valid Unicode text"),
    ({"level\udcff": "op"}, ValueError, "valid Unicode text"),
    ({"output": "a", "output_path": "b"}, ValueError, "output"),
    ({"log_level": "loud"}, ValueError, "loud"),
    ({"max_trace_size": "much"}, ValueError, "much"),
]


@pytest.mark.parametrize(
    ("listed", "text"),
    [
        ({"events": ["alloc", "launch"]}, {"events": "alloc,launch"}),
        (
            {"analysis": ("leaks", "decompose"), "device": ["npu:0", "cpu"]},
            {"analysis": "leaks,decompose", "device": "npu:0,cpu"},
        ),
        ({"call_stack": ["python:3", "c:2"], "steps": ["1", "2"]}, {"call_stack": "python:3,c:2", "steps": "1,2"}),
        ({"watch": ["full", "exp", "full-content"]}, {"watch": "full,exp,full-content"}),
        ({"events": [], "watch": []}, {"events": "", "watch": ""}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_lists_are_what_commas_are(listed, text):
    msmemscope.config(**text)
    expected = _internal.settings_text()
    msmemscope.config(watch="")
    msmemscope.config(**listed)
    assert _internal.settings_text() == expected
    msmemscope.config(watch="")


def test_an_empty_watch_turns_watching_off():
    msmemscope.config(watch="full,exp")
    assert _internal.wants_watch()
    msmemscope.config()
    assert _internal.wants_watch(), "it holds for the process"
    msmemscope.config(watch="")
    assert not _internal.wants_watch()


@pytest.mark.parametrize(("arguments", "kind", "text"), CONFIG, ids=lambda value: str(value)[:40])
def test_config(arguments, kind, text):
    before = _internal.settings_text()
    with pytest.raises(kind) as raised:
        msmemscope.config(device="npu:3", **arguments) if "device" not in arguments else msmemscope.config(**arguments)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert _internal.settings_text() == before
    if kind is ValueError:
        assert isinstance(raised.value, msmemscope.exceptions.ConfigError)


def test_config_takes_no_positional_arguments():
    with pytest.raises(TypeError, match="takes no positional arguments"):
        msmemscope.config("op")


def test_config_goes_back_to_defaults_but_keeps_the_place(tmp_path):
    msmemscope.config(level="kernel", output=str(tmp_path), call_stack="c:5")
    msmemscope.config(events="alloc")
    text = _internal.settings_text()
    assert f"output={tmp_path};" in text
    assert "level=1;" in text
    assert "c_stack" not in text


class FakeTensor:
    nbytes = 24

    def data_ptr(self):
        return 0x1000


CALLS = [
    (lambda: msmemscope.RecordFunction(3), TypeError, "must be a string"),
    (lambda: msmemscope.RecordFunction(""), ValueError, "must not be empty"),
    (lambda: msmemscope.RecordFunction("x" * 129), ValueError, "128 bytes"),
    (lambda: msmemscope.RecordFunction("x")(7), TypeError, "decorates functions only, not int"),
    (lambda: msmemscope.RecordFunction("x")(FakeTensor), Unsupported, "decorates functions only, not a class"),
    (lambda: msmemscope.RecordFunction("\udcff"), TextError, "valid Unicode text"),
    (lambda: msmemscope.take_snapshot("0"), TypeError, "device_mask"),
    (lambda: msmemscope.take_snapshot(1.5), TypeError, "device_mask"),
    (lambda: msmemscope.take_snapshot(True), TypeError, "device_mask"),
    (lambda: msmemscope.take_snapshot([0, "1"]), TypeError, "device_mask"),
    (lambda: msmemscope.take_snapshot([0, -1]), ValueError, "no device -1"),
    (lambda: msmemscope.take_snapshot(name="\udcff"), TextError, "valid Unicode text"),
    (lambda: msmemscope.TakeSnapshot(name="x" * 123), TextError, "122 bytes"),
    (lambda: msmemscope.TakeSnapshot()(FakeTensor), Unsupported, "decorates functions only, not a class"),
    (lambda: msmemscope.recording()(FakeTensor), Unsupported, "decorates functions only, not a class"),
    (lambda: msmemscope.take_snapshot(name=5), TypeError, "name must be a string"),
    (lambda: msmemscope.take_snapshot(name="x" * 129), ValueError, "128 bytes"),
    (lambda: msmemscope.TakeSnapshot({0}), TypeError, "device_mask"),
    (lambda: describe.describer(owner=3), TypeError, "must be a string"),
    (lambda: describe.describer(owner=""), ValueError, "must not be empty"),
    (lambda: describe.describer(owner="\udcff"), TextError, "valid Unicode text"),
    (lambda: describe.describer(owner="x")(FakeTensor), Unsupported, "decorates functions only, not a class"),
    (lambda: describe.describer(4096, owner="x")(print), TypeError, "without a target"),
    (lambda: describe.describer(owner="x" * 129), ValueError, "128 bytes"),
    (lambda: describe.describer(), TypeError, "owner"),
    (lambda: describe.describer("text", owner="x"), NotImplementedError, "Unsupported tensor type"),
    (lambda: describe.describer(-5, owner="x"), ValueError, "no address"),
    (lambda: describe.describer(1, owner="x"), AddressError, "1 is no address"),
    (lambda: describe.describer(FakeTensor(), owner="x").__enter__(), TypeError, "opens no region"),
    (lambda: msmemscope.watcher.watch(), TypeError, "needs a name"),
    (lambda: msmemscope.watcher.watch(name="x"), TypeError, "one positional argument"),
    (lambda: msmemscope.watcher.watch(FakeTensor(), FakeTensor(), name="x"), TypeError, "one positional argument"),
    (lambda: msmemscope.watcher.watch(FakeTensor()), TypeError, "needs a name"),
    (lambda: msmemscope.watcher.watch(FakeTensor(), name=1), TypeError, "name must be a string"),
    (lambda: msmemscope.watcher.watch(FakeTensor(), name="x" * 65), ValueError, "64 bytes"),
    (lambda: msmemscope.watcher.watch(FakeTensor(), name=""), ValueError, "64 bytes"),
    (lambda: msmemscope.watcher.watch(7, name="x"), TypeError, "Expected a tensor as args."),
    (lambda: msmemscope.watcher.watch(4096, length=0, name="x"), ValueError, "length must be positive"),
    (lambda: msmemscope.watcher.watch(4096, length="8", name="x"), TypeError, "length must be an integer"),
    (lambda: msmemscope.watcher.watch(4096, length=1 << 70, name="x"), ValueError, "beyond all addresses"),
    (lambda: msmemscope.watcher.watch(1 << 64, length=1, name="x"), ValueError, "beyond all addresses"),
    (lambda: msmemscope.watcher.watch(FakeTensor(), name="x", dump_nums=-2), ValueError, "dump_nums must be positive"),
    (lambda: msmemscope.watcher.watch(FakeTensor(), length=8, name="x"), TypeError, "must be an integer"),
    (lambda: msmemscope.watcher.watch(FakeTensor(), name="x", dump_nums=0), ValueError, "dump_nums must be positive"),
    (lambda: msmemscope.watcher.remove(), TypeError, "one positional argument"),
    (lambda: msmemscope.watcher.remove("x"), TypeError, "Expected a tensor as args."),
    (lambda: msmemscope.init_framework_hooks("keras", "1", "a", "snapshot"), ValueError, "unknown framework"),
    (lambda: msmemscope.init_framework_hooks("verl", "0.6", "TaskRunner", "snapshot"), ValueError, "not supported"),
    (lambda: msmemscope.init_framework_hooks("verl", 7, "TaskRunner", "snapshot"), TypeError, "version must be"),
    (lambda: msmemscope.init_framework_hooks("verl", "0.7.0", "x", "snapshot"), ValueError, "unknown component"),
    (lambda: msmemscope.init_framework_hooks("verl", "0.7.0", "TaskRunner", "x"), ValueError, "unknown hook_type"),
    (lambda: msmemscope.enable_npu_sanitizer(), RuntimeError, "needs torch_npu"),
]


@pytest.mark.parametrize("position", range(len(CALLS)))
def test_calls(position):
    call, kind, text = CALLS[position]
    before = _internal.settings_text(), msmemscope.watcher.blocks()
    with pytest.raises(kind) as raised:
        call()
    assert text in str(raised.value)
    assert (_internal.settings_text(), msmemscope.watcher.blocks()) == before


def test_watcher_keeps_blocks_by_address():
    msmemscope.watcher.watch(FakeTensor(), name="test", dump_nums=2)
    msmemscope.watcher.watch(0x2000, length=1000, name="other")
    assert [block.name for block in msmemscope.watcher.blocks()] == ["test", "other"]
    msmemscope.watcher.remove(FakeTensor())
    msmemscope.watcher.remove(0x2000, length=1000)
    assert msmemscope.watcher.blocks() == ()


def test_snapshot_without_a_framework():
    with pytest.raises(msmemscope.exceptions.FrameworkError, match="torch_npu"):
        msmemscope.take_snapshot(0)


def test_a_negative_device_is_refused_without_a_range_that_nobody_knows():
    with pytest.raises(ValueError, match="there is no device -1$"):
        msmemscope.take_snapshot(-1)


def test_the_longest_name_of_a_snapshot():
    assert len(msmemscope.TakeSnapshot(name="x" * 122).name) == 122

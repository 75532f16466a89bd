//! Operators and kernels of ATB, against what the stand-in libatb says itself: both ABIs, every order of preloading,
//! kills, and libraries that lack what we need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use msmemscope_event::{AccessKind, Device, Fact, Framework, KernelPhase, StringId};
use msmemscope_settings::{EventSet, LevelSet, Recording};
use msmemscope_trace::Trace;

use crate::support::{Lab, RECORDER, appearance, count, library, run};

const PROGRAM: &str = include_str!("../programs/atb.cpp");
const BOTH: &str = include_str!("../programs/atb_both.c");
const OLD: &str = "libatb_abi_0_hook.so";
const NEW: &str = "libatb_abi_1_hook.so";
/// Runs of the layer, five operators each, by each of four threads. `make test-atb` wants 10^5 operators.
const LAYERS: &str = "200";

/// What happened, by thread, in the words of the log.
type Told = BTreeMap<u32, Vec<String>>;

fn atb_home(abi: u32) -> PathBuf {
    standin_testing::home().join(format!("atb/cxx_abi_{abi}/lib"))
}

/// Compiles the program, or a library of it, for one ABI and against one libatb.
fn compiled(lab: &Lab, name: &str, abi: u32, libatb: &Path, arguments: &[&str]) -> PathBuf {
    let source = lab.path().join("atb.cpp");
    std::fs::write(&source, PROGRAM).expect("the source can be written");
    let (home, made) = (standin_testing::home(), lab.path().join(name));
    let output = run(Command::new("g++")
        .args(["-std=c++17", "-O1", "-pthread", "-fPIC"])
        .arg(format!("-D_GLIBCXX_USE_CXX11_ABI={abi}"))
        .arg("-I")
        .arg(home.join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&made)
        .args(arguments)
        .arg("-L")
        .arg(home.join("lib64"))
        .args(["-lascendcl", "-lruntime"])
        .arg(libatb.join("libatb.so"))
        .arg(format!("-Wl,-rpath,{}", libatb.display()))
        .arg(format!("-Wl,-rpath-link,{}", home.join("lib64").display())));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    made
}

/// A libatb that is built otherwise. Two of one name in a process are one to the loader, unless their name is a path.
fn other_libatb(lab: &Lab, abi: u32, definition: &str, is_named_by_path: bool) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../standin/atb");
    let sources = std::fs::read_dir(sources).expect("sources").map(|entry| entry.expect("an entry").path());
    let sources = sources.filter(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    let (home, directory) = (standin_testing::home(), lab.path().join(definition));
    std::fs::create_dir_all(&directory).expect("a directory");
    let made = directory.join("libatb.so");
    let output = run(Command::new("g++")
        .args(["-std=c++17", "-O0", "-fPIC", "-shared"])
        .arg(format!(
            "-Wl,-soname,{}",
            if is_named_by_path { made.display().to_string() } else { "libatb.so".to_owned() }
        ))
        .arg(format!("-D_GLIBCXX_USE_CXX11_ABI={abi}"))
        .arg(format!("-D{definition}"))
        .arg("-I")
        .arg(home.join("include"))
        .args(sources)
        .arg("-o")
        .arg(&made)
        .arg("-L")
        .arg(home.join("lib64"))
        .args(["-lascendcl", "-lruntime"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    directory
}

/// Settings with these events at these levels.
fn recording(lab: &Lab, events: EventSet, level: LevelSet) -> Recording {
    let mut recording = lab.recording();
    recording.settings.events.collected = events;
    recording.settings.level = level;
    recording
}

fn everything(lab: &Lab) -> Recording {
    let events = EventSet::ALLOC.union(EventSet::FREE).union(EventSet::LAUNCH).union(EventSet::ACCESS);
    recording(lab, events, LevelSet::OP.union(LevelSet::KERNEL))
}

fn libraries(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| library(name)).collect()
}

/// Codes of types and arrangements that the program uses.
fn code(name: &str) -> i32 {
    match name {
        "ACL_FLOAT" | "TENSOR_DTYPE_FLOAT" => 0,
        "ACL_FORMAT_ND" | "TENSOR_FORMAT_ND" => 2,
        other => panic!("{other}"),
    }
}

fn device_number(device: Device) -> u16 {
    match device {
        Device::Npu(number) => number,
        other => panic!("{other:?}"),
    }
}

/// What a trace tells of ATB.
fn recorded(trace: &Trace) -> Told {
    let text = |id: StringId| trace.definitions().string(id).into_owned();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut told = Told::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        let line = match record.fact {
            Fact::PlacedOperatorBegin { framework, device, name, workspace_address, workspace_bytes, path } => {
                assert_eq!(framework, Framework::Atb);
                let (device, name, path) = (device_number(device), text(name), lossy(path));
                format!("operator start {device} {name} {path} {workspace_address:#x} {workspace_bytes}")
            }
            Fact::OperatorEnd { framework: Framework::Atb, device, name, .. } => {
                format!("operator end {} {}", device_number(device), text(name))
            }
            Fact::PlacedKernel { phase, device, name, path } => {
                let moment = if phase == KernelPhase::Start { "start" } else { "end" };
                format!("kernel {moment} {} {} {}", device_number(device), text(name), lossy(path))
            }
            Fact::Access {
                kind,
                framework: Framework::Atb,
                operator,
                address,
                size_bytes,
                element_type,
                shape,
                format,
                ..
            } => {
                let kind = if kind == AccessKind::Write { "WRITE" } else { "UNKNOWN" };
                let (element_type, format) = (code(&text(element_type)), code(&text(format)));
                let (operator, shape) = (text(operator), text(shape));
                format!("access {kind} {operator} {address:#x} {size_bytes} {element_type} {format} {shape}")
            }
            _ => continue,
        };
        told.entry(record.thread_id).or_default().push(line);
    }
    told
}

/// What the library says itself, in the order of each thread. Ends of operators do not tell their place again.
fn expected(log: &Path) -> Told {
    let mut told = Told::new();
    for entry in std::fs::read_dir(log).expect("a log").map(|entry| entry.expect("an entry").path()) {
        if entry.extension().is_none_or(|extension| extension != "atb") {
            continue;
        }
        for line in std::fs::read_to_string(entry).expect("a log").lines() {
            let (thread, line) = line.split_once(' ').expect("a thread");
            assert!(!line.starts_with("saved"), "{line}");
            let line = match line.strip_prefix("operator end ") {
                Some(end) => format!("operator end {}", end.split(' ').take(2).collect::<Vec<_>>().join(" ")),
                None => line.replace("(nil)", "0x0"),
            };
            told.entry(thread.parse().expect("a number")).or_default().push(line);
        }
    }
    told
}

/// Streams on which kernels were launched.
fn streams(trace: &Trace) -> usize {
    let mut streams = BTreeSet::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        if let Fact::Kernel { phase: KernelPhase::Launch, stream_id, .. } = record.fact {
            streams.insert(stream_id);
        }
    }
    streams.len()
}

fn operators(told: &Told) -> usize {
    told.values().flatten().filter(|line| line.starts_with("operator start")).count()
}

/// Every operator, kernel and access, in both ABIs and in every order of preloading.
#[test]
fn all_that_atb_does_is_told_whatever_the_abi_and_the_order_of_preloading() {
    let layers = std::env::var("ATB_LAYERS").unwrap_or_else(|_| LAYERS.to_owned());
    for abi in [0, 1] {
        let lab = Lab::new();
        let program = compiled(&lab, "atb", abi, &atb_home(abi), &[]);
        let plain = run(lab.plain(&program).args([&layers, "4"]));
        for order in [[RECORDER, OLD, NEW], [NEW, OLD, RECORDER]] {
            lab.clear();
            let mut command = lab.plain(&program);
            lab.record_with(&mut command, &libraries(&order), &everything(&lab));
            let (with, said) = appearance(&run(command.args([&layers, "4"])));
            assert_eq!((with, said), (appearance(&plain).0, Vec::new()));
            let (told, trace) = (expected(&lab.log), lab.trace());
            assert_eq!(operators(&told), 4 * 5 * layers.parse::<usize>().expect("a number"));
            assert!(recorded(&trace) == told, "abi {abi}, {order:?}");
            assert_eq!(trace.completeness().losses, []);
            assert_eq!(streams(&trace), 2 * 4, "each thread uses two streams");
            let allocations = count(&trace, |fact| matches!(fact, Fact::AllocationWithHandle { .. }));
            let frees = count(&trace, |fact| matches!(fact, Fact::FreeByHandle { .. }));
            assert!(allocations > 0 && allocations == frees, "{allocations} and {frees}");
        }
    }
}

/// Operators alone, accesses alone, and nothing at all.
#[test]
fn only_what_was_asked_for_is_told() {
    let lab = Lab::new();
    let program = compiled(&lab, "atb", 1, &atb_home(1), &[]);
    let memory = EventSet::ALLOC.union(EventSet::FREE);
    let kinds = |events, level| {
        lab.clear();
        let mut command = lab.plain(&program);
        lab.record_with(&mut command, &libraries(&[RECORDER, NEW]), &recording(&lab, events, level));
        assert!(run(command.args(["2", "1"])).status.success());
        expected(&lab.log);
        let told = recorded(&lab.trace());
        let count = |start: &str| told.values().flatten().filter(|line| line.starts_with(start)).count();
        (count("operator"), count("kernel"), count("access"))
    };
    assert_eq!(kinds(memory, LevelSet::OP), (0, 0, 0));
    assert_eq!(kinds(memory.union(EventSet::LAUNCH), LevelSet::OP), (20, 0, 0));
    assert_eq!(kinds(memory.union(EventSet::LAUNCH), LevelSet::KERNEL), (0, 16, 0));
    let (operators, kernels, accesses) = kinds(memory.union(EventSet::ACCESS), LevelSet::OP);
    assert_eq!((operators, kernels), (0, 0));
    assert!(accesses > 40, "{accesses}");
}

/// A process with both, loaded late, each with an ATB of its own ABI, at the same time.
#[test]
fn libraries_of_both_abis_work_in_one_process() {
    let lab = Lab::new();
    let arguments = ["-shared", "-DAS_LIBRARY"];
    let plugins = [0, 1].map(|abi| {
        let libatb = other_libatb(&lab, abi, &format!("ABI_IS_{abi}"), true);
        compiled(&lab, &format!("plugin{abi}.so"), abi, &libatb, &arguments)
    });
    let program = lab.compile("atb_both.c", BOTH, &["ascendcl"]);
    let plain = run(lab.plain(&program).args(&plugins));
    assert!(plain.status.success(), "{plain:?}");
    for order in [[RECORDER, OLD, NEW], [NEW, OLD, RECORDER]] {
        lab.clear();
        let mut command = lab.plain(&program);
        lab.record_with(&mut command, &libraries(&order), &everything(&lab));
        let (with, said) = appearance(&run(command.args(&plugins)));
        assert_eq!((with, said), (appearance(&plain).0, Vec::new()));
        let told = expected(&lab.log);
        assert_eq!(operators(&told), 2 * 2 * 5 * 100);
        assert!(recorded(&lab.trace()) == told, "{order:?}");
    }
}

/// An operator that fails fails as it does without us, and has its end.
#[test]
fn failures_of_operators_pass() {
    let lab = Lab::new();
    let program = compiled(&lab, "atb", 1, &atb_home(1), &[]);
    let plain = run(lab.plain(&program).args(["20", "1"]).env("STANDIN_ATB_FAIL_EVERY", "7"));
    let mut command = lab.plain(&program);
    lab.record_with(&mut command, &libraries(&[RECORDER, NEW]), &everything(&lab));
    let (with, _) = appearance(&run(command.args(["20", "1"]).env("STANDIN_ATB_FAIL_EVERY", "7")));
    assert_eq!(with, appearance(&plain).0);
    assert!(recorded(&lab.trace()) == expected(&lab.log));
}

/// Libraries that lack what is needed run as always, and one line says what is not seen.
#[test]
fn what_cannot_be_seen_is_said_and_runs() {
    let cases = [
        ("STANDIN_ATB_HIDDEN", "does not export atb::Runner::Execute", 0),
        ("STANDIN_ATB_WITHOUT_GETTERS", "does not tell their names", 0),
        ("STANDIN_ATB_OTHER_LAYOUT", "tensors of ATB's operators are not recorded", 100),
        ("STANDIN_ATB_HIDDEN_KERNELS", "ATB's kernels and their tensors are not recorded", 100),
        ("STANDIN_ATB_WITHOUT_TENSOR_LISTS", "nobody tells them (Mki::LaunchParam::GetInTensors", 100),
    ];
    for (definition, words, seen) in cases {
        let lab = Lab::new();
        let program = compiled(&lab, "atb", 1, &other_libatb(&lab, 1, definition, false), &[]);
        let plain = run(lab.plain(&program).args(["20", "1"]));
        let mut command = lab.plain(&program);
        lab.record_with(&mut command, &libraries(&[RECORDER, OLD, NEW]), &everything(&lab));
        let (with, said) = appearance(&run(command.args(["20", "1"])));
        assert_eq!(with, appearance(&plain).0, "{definition}");
        assert_eq!(said.len(), 1, "{definition}: {said:?}");
        assert!(said[0].contains(words), "{said:?}");
        let told = expected(&lab.log);
        assert_eq!(operators(&told), 100, "{definition}");
        assert_eq!(operators(&recorded(&lab.trace())), seen, "{definition}");
    }
}

/// The pack of CANN 8.0 has its context elsewhere; nothing of it is needed.
#[test]
fn the_pack_of_older_releases_is_read() {
    let lab = Lab::new();
    let program = compiled(&lab, "atb", 0, &other_libatb(&lab, 0, "STANDIN_ATB_OLD_CONTEXT", false), &[]);
    let mut command = lab.plain(&program);
    lab.record_with(&mut command, &libraries(&[OLD, RECORDER]), &everything(&lab));
    assert!(run(command.args(["20", "2"])).status.success());
    assert!(recorded(&lab.trace()) == expected(&lab.log));
}

/// What the job itself wants saved is saved, with us as without us, and nothing else is.
#[test]
fn tensors_that_the_job_wants_saved_are_saved() {
    const PROBE: &str = r#"
        #include <cstdint>
        #include <string>
        #include <vector>
        namespace atb {
        class Probe {
        public:
            static bool IsTensorNeedSave(const std::vector<int64_t> &, const std::string &);
            static bool IsSaveTensorDesc();
            static bool IsExecuteCountInRange(const uint64_t);
            static bool IsSaveTensorBefore();
            static bool IsSaveTensorAfter();
        };
        bool Probe::IsTensorNeedSave(const std::vector<int64_t> &, const std::string &) { return true; }
        bool Probe::IsSaveTensorDesc() { return true; }
        bool Probe::IsExecuteCountInRange(const uint64_t count) { return count == 1; }
        bool Probe::IsSaveTensorBefore() { return false; }
        bool Probe::IsSaveTensorAfter() { return true; }
        }
    "#;
    let lab = Lab::new();
    let program = compiled(&lab, "atb", 1, &atb_home(1), &[]);
    let probe = lab.compile_library("probe.cpp", PROBE, "libprobe.so", &[]);
    // The process is part of every path.
    let saved = || -> Vec<String> {
        let logs = std::fs::read_dir(&lab.log).expect("a log").map(|entry| entry.expect("an entry").path());
        let log = logs.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "atb"));
        let log = std::fs::read_to_string(log.expect("a log")).expect("text");
        let lines = log.lines().filter_map(|line| line.split_once("saved "));
        lines.filter_map(|(_, path)| path.split_once('/')).map(|(_, path)| path.to_owned()).collect()
    };
    let mut command = lab.plain(&program);
    command.args(["3", "1"]).env("LD_PRELOAD", &probe).env("STANDIN_LOG", &lab.log);
    assert!(run(&mut command).status.success());
    let without = saved();
    assert!(!without.is_empty());
    lab.clear();
    let mut command = lab.plain(&program);
    let mut preloaded = libraries(&[RECORDER, NEW]);
    preloaded.push(probe);
    lab.record_with(&mut command, &preloaded, &recording(&lab, EventSet::LAUNCH, LevelSet::OP));
    assert!(run(command.args(["3", "1"])).status.success());
    assert_eq!(saved(), without);
    assert_eq!(operators(&recorded(&lab.trace())), 15);
}

/// Whenever the process is killed, the trace tells what the library has told, up to what each thread was doing.
#[test]
fn nothing_is_lost_when_the_process_is_killed() {
    let lab = Lab::new();
    let programs = [0, 1].map(|abi| compiled(&lab, &format!("atb{abi}"), abi, &atb_home(abi), &[]));
    let orders = [[RECORDER, OLD, NEW], [NEW, OLD, RECORDER]];
    let mut lines = 0;
    for moment in 1..=20 {
        lab.clear();
        // All four combinations in turn, each at early and at late moments.
        let (program, order) = (&programs[moment % 2], orders[moment / 2 % 2]);
        let mut command = lab.plain(program);
        lab.record_with(&mut command, &libraries(&order), &everything(&lab));
        command.args(["1000000", "4"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a run");
        std::thread::sleep(Duration::from_millis(20 + 7 * moment as u64));
        child.kill().expect("a process that runs");
        child.wait().expect("its end");
        let told = expected(&lab.log);
        let traces = lab.traces();
        let Some(trace) = traces.first() else {
            assert!(told.is_empty(), "{} threads without a trace", told.len());
            continue;
        };
        let recorded = recorded(trace);
        assert_eq!(trace.completeness().damage, []);
        for thread in recorded.keys().chain(told.keys()) {
            let none = Vec::new();
            let (one, other) = (recorded.get(thread).unwrap_or(&none), told.get(thread).unwrap_or(&none));
            let common = one.len().min(other.len());
            assert_eq!(one[..common], other[..common], "thread {thread}");
            // A start is told with all accesses at once, by one side first.
            assert!(one.len().abs_diff(other.len()) <= 8, "{} and {}", one.len(), other.len());
            lines += common;
        }
    }
    assert!(lines > 1000, "only {lines} lines");
}

//! A guest in the traced process, such as the Python package, talks to the recorder through its table.

use msmemscope_control::{AccessFact, AllocationFact, CollectionPlan, Recorder, Region, SnapshotFact};
use msmemscope_event::{Device, Fact, LossReason, Pool, RecordingState, StringId};
use msmemscope_settings::{CollectMode, RECORDING_VARIABLE};

use crate::support::{Lab, RECORDER, appearance, library, run};

/// Runs a test of this program as the guest of a recorder, in a process of its own. Such tests are marked as
/// ignored, because without that process they would fail; the tests that call this function run them.
pub fn run_guest(lab: &Lab, test: &str, prepare: impl Fn(&mut std::process::Command)) {
    let mut command = lab.plain(&std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--ignored", "--test-threads=1", "--nocapture"]);
    lab.record(&mut command);
    prepare(&mut command);
    let output = run(&mut command);
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "the guest of the test below, which runs it in a recorded process"]
fn guest_records_everything() {
    let recorder = Recorder::find().expect("a recorder");
    assert_eq!(recorder.state(), RecordingState::On);
    assert_eq!(recorder.process_directory(), None, "nothing happened yet");
    let table = recorder.table();
    let mut plan = CollectionPlan::default();
    let name_of_region = recorder.intern(b"region");
    // SAFETY: all functions are called as the table says, with pointers that outlive the calls.
    unsafe {
        (table.plan)(&mut plan);
        (table.label_push)(5, name_of_region);
        (table.label_push)(5, recorder.intern(b"left again"));
        (table.label_pop)(5, recorder.intern(b"left again"));
        (table.label_address)(0x1000, 5, name_of_region);
        assert_eq!(recorder.process_directory(), None, "labels alone are no reason for a recording");
        let (name, detail) = (recorder.intern(b"aten::add"), recorder.intern(b"key:value"));
        assert_eq!(recorder.intern(b"aten::add"), name);
        (table.operator)(1, 0, 2, name, detail);
        let fact = AccessFact {
            kind: 2,
            framework: 0,
            device: 2,
            operator: name,
            element_type: recorder.intern(b"float32"),
            shape: recorder.intern(b"(2, 3)"),
            format: 0,
            output_position: 1,
            address: 0x1000,
            size_bytes: 24,
        };
        (table.access)(&fact);
        (table.operator)(0, 0, 2, name, 0);
        let tensor =
            AllocationFact { pool: Pool::HostTensor as u32, device: Device::Host.code(), address: 7, size_bytes: 8 };
        (table.allocation)(&tensor);
        (table.free)(Pool::HostTensor as u32, Device::Host.code(), 7);
        assert_eq!(((table.step)(), (table.step)()), (1, 2));
        (table.label_push)(1, name);
        (table.label_address)(0x1000, 2, detail);
        (table.label_pop)(1, name);
        (table.label_pop)(5, name_of_region);
        (table.mark)(Region::of(b"mark of a guest"));
        (table.snapshot)(&SnapshotFact { device: 2, name: detail, numbers: [1, 2, 3, 4, 5, 6] });
        (table.message)(1, Region::of(b"a message"));
        assert_eq!((table.flush)(), 0);
        assert_eq!((table.redirect_import)(Region::of(b"no_such_function"), std::ptr::null()), 0);
    }
    assert!(recorder.process_directory().expect("a recording").ends_with(own_directory_name()));
    recorder.set_state(RecordingState::Shadow).expect("a state");
    // SAFETY: as above.
    unsafe {
        (table.mark)(Region::of(b"not recorded"));
        assert_eq!((table.step)(), 0);
        let tensor =
            AllocationFact { pool: Pool::HostTensor as u32, device: Device::Host.code(), address: 9, size_bytes: 10 };
        (table.allocation)(&tensor);
        (table.label_push)(5, name_of_region);
        (table.label_address)(0x2000, 5, name_of_region);
        (table.label_pop)(5, name_of_region);
    }
    recorder.set_state(RecordingState::Off).expect("a state");
    // SAFETY: as above.
    unsafe { (table.free)(Pool::HostTensor as u32, Device::Host.code(), 9) };
    assert_eq!(recorder.loss_count(LossReason::Internal), 0);
}

/// The name begins with the process id and ends with a date that is not ours to know.
fn own_directory_name() -> std::path::PathBuf {
    let output = Recorder::find().ok().and_then(|recorder| recorder.process_directory()).unwrap_or_default();
    let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
    assert!(name.starts_with(&format!("msmemscope_{}_20", std::process::id())) && name.ends_with("_ascend"), "{name}");
    name.into()
}

#[test]
fn a_guest_records_through_the_table() {
    for buffered in ["0", "1"] {
        let lab = Lab::new();
        run_guest(&lab, "guest::guest_records_everything", |command| {
            command.env("MSMEMSCOPE_BUFFERED", buffered);
        });
        let trace = lab.trace();
        assert_eq!(trace.completeness().buffered, buffered == "1");
        assert!(trace.completeness().is_complete() && trace.completeness().closed);
        let text = |id: StringId| trace.definitions().string(id).into_owned();
        let mut seen = Vec::new();
        let mut records = trace.records();
        while let Some(record) = records.next() {
            seen.push(match record.fact {
                Fact::OperatorBegin { name, detail, .. } => format!("begin {} {}", text(name), text(detail)),
                Fact::OperatorEnd { name, detail, .. } => format!("end {} {}", text(name), text(detail)),
                Fact::Access { operator, shape, element_type, address, .. } => {
                    format!("access {} {} {} {address:#x}", text(operator), text(shape), text(element_type))
                }
                Fact::Allocation { address, size_bytes, .. } => format!("allocation {address} {size_bytes}"),
                Fact::Free { address, .. } => format!("free {address}"),
                Fact::Step { number, .. } => format!("step {number}"),
                Fact::LabelPush { label, .. } => format!("push {}", text(label)),
                Fact::LabelPop { label, .. } => format!("pop {}", text(label)),
                Fact::LabelAddress { address, label, .. } => format!("label {address:#x} {}", text(label)),
                Fact::Mark { message, .. } => format!("mark {}", String::from_utf8_lossy(message)),
                Fact::Snapshot { numbers, .. } => format!("snapshot {} {}", numbers.reserved_bytes, numbers.free_bytes),
                Fact::Message { text, .. } => format!("message {}", String::from_utf8_lossy(text)),
                Fact::Recording { state } => format!("recording {state:?}"),
                _ => continue,
            });
        }
        let expected = [
            "recording On",
            "push region",
            "begin aten::add key:value",
            "access aten::add (2, 3) float32 0x1000",
            "end aten::add ",
            "allocation 7 8",
            "free 7",
            "step 1",
            "step 2",
            "push aten::add",
            "label 0x1000 key:value",
            "pop aten::add",
            "pop region",
            "mark mark of a guest",
            "snapshot 1 6",
            "message a message",
            "recording Shadow",
            "allocation 9 10",
            "push region",
            "label 0x2000 region",
            "pop region",
            "recording Off",
        ];
        assert_eq!(seen, expected);
    }
}

/// Records a mark from wherever its thread is.
extern "C" fn mark_in_handler(_: libc::c_int) {
    if let Ok(recorder) = Recorder::find() {
        // SAFETY: called as the table says.
        unsafe { (recorder.table().mark)(Region::of(b"in a handler")) };
    }
}

#[test]
#[ignore = "the guest of the test below, which runs it in a recorded process"]
fn guest_runs_operators_whose_device_shows_later() {
    let recorder = Recorder::find().expect("a recorder");
    let table = recorder.table();
    let unknown = Device::Unknown.code();
    let operator = |begins: u32, name: &str| {
        // SAFETY: called as the table says.
        unsafe { (table.operator)(begins, 0, unknown, recorder.intern(name.as_bytes()), 0) };
    };
    let access = |device: u32| {
        let (kind, framework, operator, element_type, shape, format) = (1, 0, 0, 0, 0, 0);
        let fact = AccessFact {
            kind,
            framework,
            device,
            operator,
            element_type,
            shape,
            format,
            output_position: 0,
            address: 0x1000,
            size_bytes: 8,
        };
        // SAFETY: the fact outlives the call.
        unsafe { (table.access)(&fact) };
    };
    operator(1, "first");
    access(3);
    access(2);
    operator(0, "first");
    operator(1, "nested in");
    operator(1, "this");
    access(1);
    operator(0, "this");
    operator(0, "nested in");
    // SAFETY: the handler only records; the texts outlive the calls.
    unsafe {
        libc::signal(libc::SIGUSR1, mark_in_handler as *const () as libc::sighandler_t);
        operator(1, "interrupted");
        libc::raise(libc::SIGUSR1);
        operator(0, "interrupted");
        let before = (table.message_count)();
        operator(1, "marked");
        (table.relay_mark)(Region::of(b"default"), Region::of(b"held back"));
        operator(0, "marked");
        let range_id = (table.relay_range_start)(Region::of(b"mine"), Region::of(b"range"));
        assert_ne!(range_id, 0);
        (table.relay_range_end)(Region::of(b"mine"), range_id);
        assert_eq!((table.message_count)(), before, "none of them came through the interface");
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            access(0);
            operator(1, "ends with its thread");
        });
        thread.join().expect("a thread"); // waits for its end, not only for that of the function
    });
    assert_eq!(recorder.loss_count(LossReason::Reentered), 0);
}

#[test]
fn operators_have_the_device_that_shows_inside_of_them() {
    let lab = Lab::new();
    run_guest(&lab, "guest::guest_runs_operators_whose_device_shows_later", |_| {});
    let trace = lab.trace();
    assert!(trace.completeness().is_complete());
    let text = |id: StringId| trace.definitions().string(id).into_owned();
    let mut seen = Vec::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        seen.push(match record.fact {
            Fact::OperatorBegin { name, device, .. } => format!("begin {} {device}", text(name)),
            Fact::OperatorEnd { name, device, .. } => format!("end {} {device}", text(name)),
            Fact::Access { device, .. } => format!("access {device}"),
            Fact::Mark { message, domain, .. } => {
                format!("mark {} {}", text(domain), String::from_utf8_lossy(message))
            }
            Fact::RangeBegin { domain, message, .. } => {
                format!("range {} {}", text(domain), String::from_utf8_lossy(message))
            }
            Fact::RangeEnd { domain, .. } => format!("range end {}", text(domain)),
            _ => continue,
        });
    }
    let expected = [
        "begin first 3",
        "access 3",
        "access 2",
        "end first 3",
        "begin nested in N/A",
        "begin this 1",
        "access 1",
        "end this 1",
        "end nested in 1",
        "begin interrupted N/A",
        "mark  in a handler",
        "end interrupted N/A",
        "begin marked N/A",
        "mark default held back",
        "end marked N/A",
        "range mine range",
        "range end mine",
        "access 0",
        "begin ends with its thread N/A",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn without_settings_a_job_that_never_starts_leaves_nothing_behind() {
    let mut lab = Lab::new();
    lab.output = lab.path().join("memscopeDumpResults");
    let program = lab.compile("simple.c", include_str!("../programs/simple.c"), &["ascend_hal"]);
    let mut command = lab.plain(&program);
    command.env("LD_PRELOAD", library(RECORDER));
    run(&mut command);
    assert!(!lab.output.exists(), "what was alive was noted, but nobody asked for it");
}

#[test]
fn nobody_waits_for_the_job_so_it_finishes_itself() {
    let lab = Lab::new();
    let program = lab.compile("simple.c", include_str!("../programs/simple.c"), &["ascend_hal"]);
    let finisher = lab.path().join("finisher");
    let script = "#!/bin/sh\necho \"$@\" \"${LD_PRELOAD-unset}\" > \"$2/finished\"\n";
    std::fs::write(&finisher, script).expect("a script");
    run(std::process::Command::new("chmod").arg("+x").arg(&finisher));
    let mut recording = lab.recording();
    recording.is_supervised = false;
    recording.finisher = Some(finisher);
    let without = appearance(&run(&mut lab.plain(&program))).0;
    let mut command = lab.plain(&program);
    lab.record_with(&mut command, &[library(RECORDER)], &recording);
    let (with, said) = appearance(&run(&mut command));
    assert_eq!((with, said), (without, Vec::new()));
    let directory = &lab.directories()[0];
    let finished = std::fs::read_to_string(directory.join("finished")).expect("the finisher ran");
    assert_eq!(finished, format!("finish {} unset\n", directory.display()));
}

/// Changes where results belong, as `config()` of the Python package does.
fn change_output(recorder: &Recorder, output: &str) {
    let text = std::env::var(RECORDING_VARIABLE).expect("settings");
    let mut recording = msmemscope_settings::Recording::from_environment(&text).expect("settings");
    recording.settings.output = output.into();
    recorder.configure(&recording.to_environment()).expect("a change of the output");
}

/// Allocations and frees of blocks of their own.
fn use_blocks(recorder: &Recorder, first_address: u64, count: u64) {
    let table = recorder.table();
    for address in first_address..first_address + count {
        let (pool, device) = (Pool::HostTensor as u32, Device::Host.code());
        // SAFETY: called as the table says, with a pointer that outlives the call.
        unsafe {
            (table.allocation)(&AllocationFact { pool, device, address, size_bytes: 8 });
            (table.free)(pool, device, address);
        }
    }
}

const BLOCKS_PER_THREAD: u64 = 60_000;

#[test]
#[ignore = "the guest of the test below, which runs it in a recorded process"]
fn guest_changes_the_file_system() {
    let recorder = Recorder::find().expect("a recorder");
    let other = std::env::var("OTHER_OUTPUT").expect("another place");
    use_blocks(&recorder, 1, 10);
    let before = recorder.process_directory().expect("a recording");
    std::thread::scope(|scope| {
        for thread in 1..4 {
            let recorder = &recorder;
            scope.spawn(move || use_blocks(recorder, thread << 32, BLOCKS_PER_THREAD));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        change_output(&recorder, &other);
        assert!(recorder.process_directory().expect("a recording").starts_with(&other));
        assert!(!before.exists(), "{}", before.display());
    });
    use_blocks(&recorder, 100, 10);
}

#[test]
fn a_recording_moves_to_another_file_system() {
    use std::os::unix::fs::MetadataExt;
    for buffered in ["0", "1"] {
        let mut lab = Lab::new();
        let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return };
        let device = |path: &std::path::Path| std::fs::metadata(path).expect("a directory").dev();
        if device(other.path()) == device(lab.path()) {
            eprintln!("skipped: there is only one file system");
            return;
        }
        run_guest(&lab, "guest::guest_changes_the_file_system", |command| {
            command.env("OTHER_OUTPUT", other.path().join("there")).env("MSMEMSCOPE_BUFFERED", buffered);
        });
        assert!(!lab.output.exists(), "what is empty is removed");
        lab.output = other.path().join("there");
        let trace = lab.trace();
        assert!(trace.completeness().is_complete() && trace.completeness().closed, "{:?}", trace.completeness());
        assert_eq!(crate::support::block_event_count(&trace) as u64, 2 * (20 + 3 * BLOCKS_PER_THREAD));
    }
}

#[test]
#[ignore = "the guest of the tests below, which run it in a recorded process"]
fn guest_names_a_place_that_can_be_written() {
    let recorder = Recorder::find().expect("a recorder");
    let is_wanted = recorder.state() == RecordingState::On;
    let before =
        AllocationFact { pool: Pool::HostTensor as u32, device: Device::Host.code(), address: 5, size_bytes: 6 };
    // SAFETY: called as the table says, with a pointer that outlives the call.
    unsafe { (recorder.table().allocation)(&before) };
    assert_eq!(recorder.process_directory().is_none(), is_wanted, "{:?}", recorder.process_directory());
    change_output(&recorder, &std::env::var("OTHER_OUTPUT").expect("another place"));
    recorder.set_state(RecordingState::On).expect("a state");
    use_blocks(&recorder, 7, 1);
}

/// What is recorded after a change of the place, which could not be written before.
fn recorded_at_a_better_place(mode: CollectMode) -> Vec<String> {
    let mut lab = Lab::new();
    let good = lab.path().join("good");
    let mut recording = lab.recording();
    recording.settings.collect_mode = mode;
    recording.settings.output = "/proc/no/such/place".into();
    recording.is_supervised = false;
    recording.finisher = Some("/bin/true".into());
    run_guest(&lab, "guest::guest_names_a_place_that_can_be_written", |command| {
        lab.record_with(command, &[library(RECORDER)], &recording);
        command.env("OTHER_OUTPUT", &good).env("TMPDIR", lab.path());
    });
    lab.output = good;
    let trace = lab.trace();
    let mut seen = Vec::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        match record.fact {
            Fact::Allocation { address, .. } => seen.push(format!("allocation {address}")),
            Fact::Free { address, .. } => seen.push(format!("free {address}")),
            _ => {}
        }
    }
    seen.extend(trace.completeness().losses.iter().map(|(reason, count)| format!("{count} {reason:?}")));
    seen
}

#[test]
fn a_better_place_is_tried_at_once() {
    let expected = ["allocation 7", "free 7", "1 TraceUnavailable"];
    assert_eq!(recorded_at_a_better_place(CollectMode::Immediate), expected);
}

#[test]
fn what_is_alive_is_known_wherever_the_job_started() {
    let expected = ["allocation 5", "allocation 7", "free 7"];
    assert_eq!(recorded_at_a_better_place(CollectMode::Deferred), expected);
}

#[test]
#[ignore = "the guest of the test below, which runs it in a process without preloaded recorder"]
fn guest_loads_the_recorder_late() {
    let path = |name: &str| {
        let path = std::env::var_os(name).expect("a path").into_encoded_bytes();
        std::ffi::CString::new(path).expect("a path")
    };
    // SAFETY: libraries of this test; the function has the type it has in C.
    unsafe {
        let plugin = libc::dlopen(path("PLUGIN").as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        let plugin_use = libc::dlsym(plugin, c"plugin_use".as_ptr());
        assert!(!plugin_use.is_null());
        let plugin_use: unsafe extern "C" fn(u64) -> i32 = std::mem::transmute(plugin_use);
        assert_eq!(plugin_use(1), 0, "not seen");
        assert!(Recorder::find().is_err());
        let recorder = libc::dlopen(path("RECORDER").as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        assert!(!recorder.is_null());
        let recorder = Recorder::find().expect("a recorder");
        assert_eq!((recorder.table().sources)(), 0);
        assert!((recorder.table().patch_imports)() >= 2);
        assert_eq!((recorder.table().patch_imports)(), 0, "everything is redirected");
        assert_eq!(plugin_use(2), 0, "seen");
        assert_eq!((recorder.table().sources)(), msmemscope_control::SOURCE_DRIVER);
        std::thread::spawn(move || assert_eq!(plugin_use(3), 0, "seen")).join().expect("a thread");
    }
}

#[test]
fn a_recorder_loaded_late_sees_what_comes_after() {
    let lab = Lab::new();
    let libraries = standin_testing::home().join("lib64");
    let arguments = [&format!("-L{}", libraries.display()), "-lascend_hal", "-Wl,-z,now,-z,relro"];
    let plugin = lab.compile_library("plugin.c", include_str!("../programs/plugin.c"), "libplugin.so", &arguments);
    run_guest(&lab, "guest::guest_loads_the_recorder_late", |command| {
        command.env_remove("LD_PRELOAD").env("PLUGIN", &plugin).env("RECORDER", library(RECORDER));
    });
    assert_eq!(crate::support::driver_allocation_sizes(&lab.trace()), [2, 3]);
}

//! Kernels: every launch, start and end that the device has logged is in the trace, once, at its time.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use msmemscope_control::{Recorder, Region};
use msmemscope_event::{Device, Fact, KernelPhase, RecordingState, Severity};
use msmemscope_settings::{CollectMode, LevelSet, RECORDING_VARIABLE, Recording};
use msmemscope_trace::{TRACE_FILE_NAME, Trace};
use standin_truth::{Entry, Kind};

use crate::guest::run_guest;
use crate::kill::logged;
use crate::support::{Lab, RECORDER, count, library, run};

const PROGRAM: &str = include_str!("../programs/kernels.c");
const LIBRARIES: [&str; 4] = ["ascendcl", "runtime", "ascend_hal", "profapi"];
/// Times of the cards are on the host's clock, as far as clocks can be compared on a busy machine.
const TOLERATED_NS: u64 = 1_000_000;

/// A stream of a card.
type Stream = (Device, u32);

/// The clock that stamps launches may be a little off.
const TOLERATED_OF_LAUNCHES_NS: u64 = 1_000;

/// What happened on a stream, in order: for launches name and task, and the time, for the card's moments whether it is a
/// start, the task and the time.
#[derive(Debug, Default)]
struct Story {
    launches: Vec<(String, u32)>,
    launched_ns: Vec<u64>,
    moments: Vec<(bool, u32, u64)>,
}

fn recording(lab: &Lab) -> Recording {
    let mut recording = lab.recording();
    recording.settings.level = LevelSet::KERNEL;
    recording
}

fn program(lab: &Lab) -> PathBuf {
    lab.compile("kernels.c", PROGRAM, &LIBRARIES)
}

/// The program under the recorder, with kernels recorded.
fn recorded(lab: &Lab, program: &Path, arguments: &[&str]) -> Command {
    let mut command = lab.plain(program);
    command.args(arguments);
    lab.record_with(&mut command, &[library(RECORDER)], &recording(lab));
    command
}

/// Kernels as the trace has them. `numbers_by_card`: the card says no stream, and tasks are known by their number.
fn told(trace: &Trace) -> BTreeMap<Stream, Story> {
    let mut stories = BTreeMap::<Stream, Story>::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        if let Fact::Kernel { phase, device, name, stream_id, task_id, .. } = record.fact {
            let story = stories.entry((device, stream_id)).or_default();
            match phase {
                KernelPhase::Launch => {
                    story.launches.push((trace.definitions().string(name).into_owned(), task_id));
                    story.launched_ns.push(record.monotonic_ns);
                }
                _ => story.moments.push((phase == KernelPhase::ExecuteStart, task_id, record.monotonic_ns)),
            }
        }
    }
    stories
}

/// Kernels as the device has logged them. Moments whose record the device itself has lost are left out.
fn expected(entries: &[Entry], process: u32, stream_of: impl Fn(u32) -> u32) -> BTreeMap<Stream, Story> {
    let mut stories = BTreeMap::<Stream, Story>::new();
    for entry in entries.iter().filter(|entry| entry.process == process) {
        let record = &entry.record;
        let (stream, task) = ((record.address >> 32) as u32, record.address as u32);
        let device = Device::from_id(i64::from(record.device));
        match record.kind {
            Kind::KernelLaunch => {
                let name = entry.text.clone().unwrap_or_default();
                let story = stories.entry((device, stream)).or_default();
                story.launches.push((name, task));
                story.launched_ns.push(record.time_ns);
            }
            Kind::KernelStart | Kind::KernelEnd if record.result == 0 => {
                let moment = (record.kind == Kind::KernelStart, task, record.time_ns);
                stories.entry((device, stream_of(stream))).or_default().moments.push(moment);
            }
            _ => {}
        }
    }
    stories
}

/// The moments of kernels, without those of copies and events, whose launches have no name.
fn of_kernels(story: &Story, expected: &Story) -> Vec<(bool, u32, u64)> {
    let tasks: std::collections::HashSet<u32> = expected.moments.iter().map(|(_, task, _)| task & 0xffff).collect();
    story.moments.iter().filter(|(_, task, _)| tasks.contains(&(task & 0xffff))).copied().collect()
}

fn assert_same_moments(told: &[(bool, u32, u64)], expected: &[(bool, u32, u64)], stream: Stream) {
    for (index, (told, expected)) in told.iter().zip(expected).enumerate() {
        let (told_id, expected_id) = ((told.0, told.1 & 0xffff), (expected.0, expected.1 & 0xffff));
        assert_eq!(told_id, expected_id, "{stream:?} {index}");
        assert!(told.2.abs_diff(expected.2) < TOLERATED_NS, "{stream:?} {index}: {told:?} {expected:?}");
    }
}

/// Both say exactly the same.
fn assert_equal(told: &BTreeMap<Stream, Story>, expected: &BTreeMap<Stream, Story>) {
    for (stream, expected) in expected {
        let none = Story::default();
        let told = told.get(stream).unwrap_or(&none);
        assert_eq!(told.launches, expected.launches, "{stream:?}");
        // The device logs a launch when it puts the kernel into its queue, where the card may find it at once.
        for (told_ns, queued_ns) in told.launched_ns.iter().zip(&expected.launched_ns) {
            assert!(*told_ns <= queued_ns + TOLERATED_OF_LAUNCHES_NS, "{stream:?}: {told_ns} {queued_ns}");
        }
        let moments = of_kernels(told, expected);
        assert_eq!(moments.len(), expected.moments.len(), "{stream:?}");
        assert_same_moments(&moments, &expected.moments, *stream);
    }
}

fn assert_complete(lab: &Lab, stream_of: impl Fn(u32) -> u32) -> usize {
    let entries = logged(lab);
    let mut launches = 0;
    for trace in lab.traces() {
        assert_eq!(trace.completeness().losses, []);
        let expected = expected(&entries, trace.process_id(), &stream_of);
        assert_equal(&told(&trace), &expected);
        launches += expected.values().map(|story| story.launches.len()).sum::<usize>();
    }
    launches
}

#[test]
fn every_launch_start_and_end_is_recorded_once() {
    let lab = Lab::new();
    let program = program(&lab);
    let settings: [&[(&str, &str)]; 3] = [
        &[("STANDIN_HOST_KHZ", "100000")],
        &[("STANDIN_STREAM_EXPANSION", "0"), ("STANDIN_CLOCK_DRIFT_PPM", "200")],
        &[("STANDIN_CANN", "8.0"), ("STANDIN_CLOCK_KHZ", "1000")],
    ];
    for setting in settings {
        let output = run(recorded(&lab, &program, &["work", "4", "20000"]).envs(setting.iter().copied()));
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(assert_complete(&lab, |stream| stream), 80_000, "{setting:?}");
        lab.clear();
    }
}

/// Kernels of a captured graph are launched once, and start and end whenever the graph is run; also beside a profiler that
/// has reports held back until calls end.
#[test]
fn kernels_of_graphs_are_known_whenever_they_run() {
    const RUNS: usize = 8;
    let lab = Lab::new();
    let program = program(&lab);
    let runs = (RUNS - 1).to_string();
    for listeners in ["1", "2"] {
        let plain = run(lab.plain(&program).args(["graph", listeners, &runs]));
        let text = String::from_utf8_lossy(&plain.stdout);
        assert!(text.contains(&format!("ran {}, copied 'source'", 5 * RUNS)), "{text}");
        assert!(text.contains("captured 1 0, ran 0, copied ''"), "{text}");
        let output = run(&mut recorded(&lab, &program, &["graph", listeners, &runs]));
        assert_eq!((&output.stdout, output.stderr.is_empty()), (&plain.stdout, true), "{output:?}");
        assert_eq!(assert_complete(&lab, |stream| stream), 1 + 5 + (RUNS - 1) + 1);
        let captured = count(&lab.trace(), |fact| matches!(fact, Fact::KernelCaptured { .. }));
        assert_eq!(captured, 5, "and not when a stream ends");
        lab.clear();
    }
}

/// More tasks than there are numbers.
#[test]
fn numbers_of_tasks_wrap_around() {
    let lab = Lab::new();
    let output = run(&mut recorded(&lab, &program(&lab), &["work", "1", "150000"]));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(assert_complete(&lab, |stream| stream), 150_000);
}

#[test]
fn chips_that_number_tasks_by_card_are_read() {
    let lab = Lab::new();
    let program = program(&lab);
    let output = run(recorded(&lab, &program, &["work", "2", "3000"]).env("STANDIN_SOC", "Ascend950PR_9599"));
    assert!(output.status.success(), "{output:?}");
    let trace = lab.trace();
    let told = told(&trace);
    let expected = expected(&logged(&lab), trace.process_id(), |_| u32::MAX);
    for (stream, expected) in &expected {
        let story = &told[stream];
        assert_eq!(story.launches, expected.launches);
        let number = |moments: &[(bool, u32, u64)]| {
            let mut numbers: Vec<_> = moments.iter().map(|(is_start, task, _)| (*is_start, *task)).collect();
            numbers.sort_unstable();
            numbers
        };
        let tasks: std::collections::HashSet<u32> = expected.moments.iter().map(|(_, task, _)| *task).collect();
        let kernels: Vec<_> = story.moments.iter().filter(|(_, task, _)| tasks.contains(task)).copied().collect();
        assert_eq!(number(&kernels), number(&expected.moments), "{stream:?}");
    }
}

/// What was read is there, whenever the process is killed; launches are complete but for those under way.
#[test]
fn killed_while_kernels_run() {
    let lab = Lab::new();
    let program = program(&lab);
    let (mut launches, mut moments) = (0, 0);
    for moment in 0..8u32 {
        let microseconds = (30_000 + 37_000 * moment).to_string();
        let mut command = recorded(&lab, &program, &["kill", "4", "2000", &microseconds]);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a run");
        assert!(!status.success());
        let entries = logged(&lab);
        for directory in lab.directories() {
            let Ok(trace) = Trace::open(&directory.join(TRACE_FILE_NAME)) else { continue };
            assert_eq!(
                (trace.completeness().losses.as_slice(), trace.completeness().damage.as_slice()),
                (&[][..], &[][..])
            );
            let told = told(&trace);
            for (stream, expected) in &expected(&entries, trace.process_id(), |stream| stream) {
                let none = Story::default();
                let story = told.get(stream).unwrap_or(&none);
                let common = story.launches.len().min(expected.launches.len());
                assert_eq!(story.launches[..common], expected.launches[..common], "{stream:?}");
                assert!(story.launches.len().abs_diff(expected.launches.len()) <= 1, "{stream:?}");
                let kernels = of_kernels(story, expected);
                assert_same_moments(&kernels, &expected.moments, *stream);
                assert!(kernels.len() <= expected.moments.len() + 1);
                launches += common;
                moments += kernels.len();
            }
        }
        lab.clear();
    }
    assert!(launches > 5_000 && moments > 5_000, "{launches} {moments}");
}

#[test]
fn nothing_is_left_unread_at_the_end() {
    let lab = Lab::new();
    let program = program(&lab);
    for (how, code) in [("exit", 3), ("finalize", 0)] {
        let output = run(&mut recorded(&lab, &program, &[how, "1", "500"]));
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(assert_complete(&lab, |stream| stream), 500, "{how}");
        lab.clear();
    }
}

/// Kernels that take their time, on a card that is neither the first nor the one of that name.
#[test]
fn cards_are_called_by_their_own_numbers() {
    let lab = Lab::new();
    let program = program(&lab);
    let output = run(recorded(&lab, &program, &["slow", "1", "20"]).env("ASCEND_RT_VISIBLE_DEVICES", "5,3"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(assert_complete(&lab, |stream| stream), 20);
    assert_eq!(told(&lab.trace()).keys().next(), Some(&(Device::Npu(3), 0)));
}

/// Runs the program with and without the recorder and returns what the recorder said.
fn same_with_and_without(lab: &Lab, program: &Path, arguments: &[&str]) -> Vec<String> {
    let settings = recording(lab).to_environment();
    lab.same_with_and_without_in(program, arguments, |command| {
        command.env(RECORDING_VARIABLE, &settings);
    })
}

#[test]
fn a_channel_that_belongs_to_somebody_else_stays_theirs() {
    let lab = Lab::new();
    let program = program(&lab);
    for (how, reason, moments) in [
        ("owned", "the channel of card 0 belongs to somebody else (driver error 4)", 0),
        ("taken", "somebody else in this process has taken the channel of card 0, until they stop it", 2),
    ] {
        let said = same_with_and_without(&lab, &program, &[how]);
        let line = format!("starts and ends of kernels are not recorded, only their launches: {reason}");
        assert_eq!(said, [format!("[msmemscope] {line}")]);
        let trace = lab.trace();
        let counted = |wanted| count(&trace, |fact| matches!(fact, Fact::Kernel { phase, .. } if *phase == wanted));
        assert_eq!(counted(KernelPhase::Launch), 2, "{how}");
        assert_eq!(counted(KernelPhase::ExecuteStart) + counted(KernelPhase::ExecuteEnd), moments, "{how}");
        let is_said = |fact: &Fact<'_>| matches!(fact, Fact::Message { severity: Severity::Warning, text } if *text == line.as_bytes());
        assert_eq!(count(&trace, is_said), 1, "{how}");
        lab.clear();
    }
}

/// Kernels behind the first after another profiler has stopped the channel are whole.
#[test]
fn a_channel_that_was_given_back_is_read_again() {
    let lab = Lab::new();
    assert_eq!(same_with_and_without(&lab, &program(&lab), &["given back"]).len(), 1);
    let trace = lab.trace();
    let (_, story) = told(&trace).pop_first().expect("a stream");
    assert_eq!(story.launches.len(), 13);
    let moments_of = |task| story.moments.iter().filter(|(_, told, _)| told & 0xffff == task).count();
    let moments: Vec<usize> = story.launches.iter().map(|(_, task)| moments_of(task & 0xffff)).collect();
    // The fourth kernel opens the channel and may be done by then.
    assert_eq!((moments[0], &moments[1..3]), (2, &[0, 0][..]), "{moments:?}");
    assert!(moments[4..].iter().all(|count| *count == 2), "{moments:?}");
}

/// Another profiler hears what it hears without us, and we hear the rest as well; also one that wants calls reported, for
/// which the runtime holds reports back.
#[test]
fn other_profilers_go_on_listening() {
    let lab = Lab::new();
    assert_eq!(same_with_and_without(&lab, &program(&lab), &["listener"]), [""; 0]);
    assert_eq!(assert_complete(&lab, |stream| stream), 40);
}

#[test]
fn a_job_ends_when_its_last_thread_does() {
    let lab = Lab::new();
    assert_eq!(same_with_and_without(&lab, &program(&lab), &["last thread"]), [""; 0]);
}

#[test]
fn children_have_a_reader_only_if_they_use_a_card() {
    let lab = Lab::new();
    assert_eq!(same_with_and_without(&lab, &program(&lab), &["fork"]), [""; 0]);
    assert_eq!(assert_complete(&lab, |stream| stream), 6);
    assert_eq!(lab.traces().len(), 2);
}

#[test]
fn nothing_is_touched_unless_kernels_are_wanted() {
    let lab = Lab::new();
    assert_eq!(lab.same_with_and_without(&program(&lab), &["work", "2", "100"]), [""; 0]);
    assert_eq!(lab.same_with_and_without(&program(&lab), &["owned"]), [""; 0]);
    for trace in lab.traces() {
        assert_eq!(count(&trace, |fact| matches!(fact, Fact::Kernel { .. })), 0);
    }
    let untouched = logged(&lab).into_iter().filter(|entry| entry.record.kind == Kind::KernelStart);
    assert!(untouched.filter(|entry| entry.record.result == 2).count() >= 200);
}

/// A ring that is too small for what the card tells: launches are complete, and what was read is true.
#[test]
fn a_ring_that_overflows_costs_only_what_it_dropped() {
    let lab = Lab::new();
    let program = program(&lab);
    let output = run(recorded(&lab, &program, &["work", "4", "20000"]).env("STANDIN_CHANNEL_BYTES", "4K"));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let dropped = logged(&lab).iter().filter(|entry| entry.record.result == 1).count();
    assert!(dropped > 10_000, "{dropped}");
    assert_eq!(assert_complete(&lab, |stream| stream), 80_000);
}

/// Nobody comes to read for ten seconds: what the ring of the card could hold is there, and all launches are.
#[test]
fn a_reader_that_comes_late_finds_what_the_ring_could_hold() {
    let lab = Lab::new();
    let mut command = recorded(&lab, &program(&lab), &["patient", "1", "3000"]);
    let output = run(command.envs([("STANDIN_CHANNEL_SILENCE_MS", "10000"), ("STANDIN_CHANNEL_BYTES", "64K")]));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let entries = logged(&lab);
    let dropped = entries.iter().filter(|entry| entry.record.result == 1).count();
    assert!(dropped > 4_000, "{dropped}");
    assert_eq!(assert_complete(&lab, |stream| stream), 3_000);
    let story = told(&lab.trace()).pop_first().expect("a stream").1;
    assert!(story.moments.len() >= 1_024, "{}", story.moments.len());
}

/// Reads may end within a record, and give less than there is; counters of cards begin anywhere.
#[test]
fn records_that_come_in_pieces_are_put_together() {
    let lab = Lab::new();
    let program = program(&lab);
    for (piece_bytes, offset_ticks) in [("100", "0"), ("7", "9000000000000000000"), ("4000", "18446740000000000000")] {
        let mut command = recorded(&lab, &program, &["work", "2", "1500"]);
        command.envs([("STANDIN_CHANNEL_PIECE_BYTES", piece_bytes), ("STANDIN_CLOCK_OFFSET_TICKS", offset_ticks)]);
        let output = run(&mut command);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(assert_complete(&lab, |stream| stream), 3_000, "{piece_bytes}");
        lab.clear();
    }
}

/// Drivers of the 8.0 time have no function that waits for records: they are looked for now and then.
#[test]
fn a_driver_that_cannot_wait_is_asked_now_and_then() {
    const WAITS: &[u8] = b"prof_channel_poll\0";
    let lab = Lab::new();
    let program = program(&lab);
    let driver = std::fs::read(standin_testing::home().join("lib64/libascend_hal.so")).expect("the driver");
    let places: Vec<usize> = (0..driver.len() - WAITS.len()).filter(|&at| driver[at..].starts_with(WAITS)).collect();
    let mut without = driver;
    assert!(!places.is_empty());
    places.iter().for_each(|at| without[*at] = b'_');
    let directory = lab.path().join("older");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join("libascend_hal.so"), without).expect("a library can be written");
    let mut command = recorded(&lab, &program, &["work", "2", "3000"]);
    let others = standin_testing::home().join("lib64");
    command.env("LD_LIBRARY_PATH", format!("{}:{}", directory.display(), others.display()));
    let output = run(command.env("STANDIN_CANN", "8.0"));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(assert_complete(&lab, |stream| stream), 6_000);
}

/// The launching code of the program, as a library for guests.
struct Launcher {
    launch: unsafe extern "C" fn(i32, *mut c_void, *mut c_void, *const Arguments) -> i32,
    kernel: unsafe extern "C" fn(*const c_char, u32) -> *mut c_void,
    create_stream: unsafe extern "C" fn(*mut *mut c_void) -> i32,
    synchronize: unsafe extern "C" fn() -> i32,
}

/// What a kernel computes.
#[repr(C)]
struct Arguments {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

const LAUNCHER_VARIABLE: &str = "LAUNCHER";
/// The first way that does not exist.
const WAYS: i32 = 26;

impl Launcher {
    /// Uses the first card.
    fn load() -> Self {
        let path = std::env::var_os(LAUNCHER_VARIABLE).expect("a path").into_encoded_bytes();
        let path = CString::new(path).expect("a path");
        // SAFETY: a library of this test; its functions have the types they have in C.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            assert!(!library.is_null());
            let find = |name: &CStr| {
                let found = libc::dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "{name:?}");
                found
            };
            let start =
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> i32>(find(c"aclInit"));
            let set = std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32) -> i32>(find(c"aclrtSetDevice"));
            assert_eq!((start(std::ptr::null()), set(0)), (0, 0));
            Self {
                launch: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(i32, *mut c_void, *mut c_void, *const Arguments) -> i32,
                >(find(c"launch_in_way")),
                kernel: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, u32) -> *mut c_void>(
                    find(c"standinKernel"),
                ),
                create_stream: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut *mut c_void) -> i32>(find(
                    c"aclrtCreateStream",
                )),
                synchronize: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> i32>(find(
                    c"aclrtSynchronizeDevice",
                )),
            }
        }
    }

    fn stream(&self) -> *mut c_void {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the result outlives the call.
        assert_eq!(unsafe { (self.create_stream)(&mut stream) }, 0);
        stream
    }

    fn launch(&self, way: i32, stream: *mut c_void, function: Option<unsafe extern "C" fn(*mut c_void)>) {
        let arguments = Arguments { function, argument: std::ptr::null_mut() };
        // SAFETY: the arguments are copied in the call; the stream exists.
        unsafe {
            let kernel = (self.kernel)(c"Add_0123456789abcdef0123456789abcdef_8".as_ptr(), 0);
            assert_eq!((self.launch)(way, kernel, stream, &arguments), 0, "{way}");
        }
    }

    fn synchronize(&self) {
        // SAFETY: no arguments.
        assert_eq!(unsafe { (self.synchronize)() }, 0);
    }
}

/// Runs a guest with the launching library at hand.
fn run_with_launcher(lab: &Lab, guest: &str, recording: &Recording) {
    let libraries = format!("-L{}", standin_testing::home().join("lib64").display());
    let mut arguments = vec![&libraries[..]];
    let linked = LIBRARIES.map(|name| format!("-l{name}"));
    arguments.extend(linked.iter().map(String::as_str));
    let launcher = lab.compile_library("kernels.c", PROGRAM, "liblauncher.so", &arguments);
    run_guest(lab, guest, |command| {
        lab.record_with(command, &[library(RECORDER)], recording);
        command.env(LAUNCHER_VARIABLE, &launcher);
    });
}

static OBSERVED: Mutex<Vec<(bool, usize, String)>> = Mutex::new(Vec::new());

unsafe extern "C" fn note_launch(begins: u32, stream: *mut c_void, name: Region) {
    // SAFETY: lent for this call.
    let name = String::from_utf8_lossy(unsafe { name.bytes() }).into_owned();
    OBSERVED.lock().expect("a list").push((begins != 0, stream as usize, name));
}

#[test]
#[ignore = "the guest of the test below, which runs it in a recorded process"]
fn guest_observes_every_way_to_launch() {
    let recorder = Recorder::find().expect("a recorder");
    let launcher = Launcher::load();
    // SAFETY: this program is never unloaded.
    unsafe { recorder.observe_launches(Some(note_launch)) };
    for way in 0..WAYS {
        let stream = launcher.stream();
        launcher.launch(way, stream, None);
        let observed = std::mem::take(&mut *OBSERVED.lock().expect("a list"));
        let [before, after] = &observed[..] else { panic!("way {way}: {observed:?}") };
        assert_eq!(*before, (true, stream as usize, String::new()), "way {way}");
        assert_eq!((after.0, after.1, after.2.is_empty()), (false, stream as usize, false), "way {way}");
    }
    launcher.synchronize();
}

/// Watching waits for the stream of a launch, so it must be the one that the job gave: in whichever place a function takes
/// it, once for functions that call each other.
#[test]
fn a_guest_is_told_the_stream_of_every_launch_once() {
    let lab = Lab::new();
    run_with_launcher(&lab, "kernels::guest_observes_every_way_to_launch", &recording(&lab));
    assert_eq!(assert_complete(&lab, |stream| stream), WAYS as usize);
}

/// Kernels of the test below that have begun to run.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn take_a_while(_: *mut c_void) {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(std::time::Duration::from_millis(30));
}

/// Kernels of each half of the test below.
const HALF: i32 = 5;

#[test]
#[ignore = "the guest of the test below, which runs it in a recorded process"]
fn guest_starts_recording_while_kernels_run() {
    let recorder = Recorder::find().expect("a recorder");
    let launcher = Launcher::load();
    let stream = launcher.stream();
    (0..HALF).for_each(|_| launcher.launch(0, stream, Some(take_a_while)));
    while BEGUN.load(Ordering::Relaxed) < 2 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    recorder.set_state(RecordingState::On).expect("a state");
    (0..HALF).for_each(|_| launcher.launch(0, stream, Some(take_a_while)));
    launcher.synchronize();
}

/// Of kernels that were launched before recording starts, what is told afterwards is there; those launched later are whole.
#[test]
fn recording_that_starts_while_kernels_run_has_the_rest_of_them() {
    let lab = Lab::new();
    let mut recording = recording(&lab);
    recording.settings.collect_mode = CollectMode::Deferred;
    run_with_launcher(&lab, "kernels::guest_starts_recording_while_kernels_run", &recording);
    let trace = lab.trace();
    let expected = expected(&logged(&lab), trace.process_id(), |stream| stream);
    let told = told(&trace);
    let (stream, expected) = expected.first_key_value().expect("a stream");
    let story = &told[stream];
    assert_eq!(story.launches, expected.launches[HALF as usize..]);
    // The card tells nothing before its channel is open: at least the first kernel is past then.
    let moments = expected.moments.len();
    assert!((2 * HALF as usize..4 * HALF as usize - 2).contains(&moments), "{moments}");
    assert_eq!(story.moments.len(), moments);
    assert_same_moments(&story.moments, &expected.moments, *stream);
}

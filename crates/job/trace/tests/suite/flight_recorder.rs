//! A file that keeps only the newest: what is alive stays exact, and so does everything since the moment it names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use msmemscope_event::{
    AccessKind, BlockProperties, Device, Fact, Framework, KernelPhase, Pool, Record, RecordingState, StackId, StringId,
    WorkPhase,
};
use msmemscope_trace::{Trace, copy_moment};

use crate::support::{Recording, Threads, allocation, caching, free};

const RING_BYTES: u64 = 8 << 20;
const FIRST_NS: u64 = 1_000;
const INTERVAL_NS: u64 = 30;

/// What a state consists of, found without any regard to room.
#[derive(Debug, Default, PartialEq)]
struct State {
    live: BTreeMap<u64, Block>,
    /// Regions that threads are in.
    regions: BTreeMap<u32, Vec<StringId>>,
    operators: BTreeMap<u32, Vec<StringId>>,
    reserved_bytes: u64,
    step: u64,
    strings: BTreeSet<u32>,
}

#[derive(Debug, PartialEq)]
struct Block {
    size_bytes: u64,
    begin_ns: u64,
    native_stack: StackId,
    thread_id: u32,
    regions: Vec<StringId>,
    operator: Option<StringId>,
    step: u64,
    labels: BTreeSet<(u32, StringId)>,
    holder: Option<StringId>,
    first_touch: Option<StringId>,
}

impl State {
    fn take(&mut self, record: &Record<'_>) {
        let Record { monotonic_ns, thread_id, native_stack, .. } = *record;
        match record.fact {
            Fact::Allocation { address, size_bytes, .. } => {
                let block = Block {
                    size_bytes,
                    begin_ns: monotonic_ns,
                    native_stack,
                    thread_id,
                    regions: self.regions.get(&thread_id).cloned().unwrap_or_default(),
                    operator: self.operators.get(&thread_id).and_then(|open| open.last().copied()),
                    step: self.step,
                    labels: BTreeSet::new(),
                    holder: None,
                    first_touch: None,
                };
                self.live.insert(address, block);
            }
            Fact::Free { address, .. } => {
                self.live.remove(&address);
            }
            Fact::LabelPush { label, .. } => self.regions.entry(thread_id).or_default().push(label),
            Fact::LabelPop { .. } => {
                self.regions.entry(thread_id).or_default().pop();
            }
            Fact::OperatorBegin { name, .. } => self.operators.entry(thread_id).or_default().push(name),
            Fact::OperatorEnd { .. } => {
                self.operators.entry(thread_id).or_default().pop();
            }
            Fact::LabelAddress { address, level, label } => {
                if let Some(block) = self.block_at(address) {
                    block.labels.insert((level, label));
                }
            }
            Fact::Holder { address, path } => {
                if let Some(block) = self.block_at(address) {
                    block.holder = Some(path);
                }
            }
            Fact::Access { address, operator, .. } => {
                if let Some(block) = self.block_at(address) {
                    block.first_touch.get_or_insert(operator);
                }
            }
            Fact::HeapRegistered { size_bytes, .. } => self.reserved_bytes = size_bytes,
            Fact::Step { number, .. } => self.step = number,
            Fact::DefineString { id, .. } => {
                self.strings.insert(id.0);
            }
            _ => {}
        }
    }

    fn block_at(&mut self, address: u64) -> Option<&mut Block> {
        let (start, block) = self.live.range_mut(..=address).next_back()?;
        (address - start < block.size_bytes).then_some(block)
    }

    fn read(trace: &Trace) -> (Self, u64) {
        let (mut state, mut last_ns) = (Self::default(), 0);
        let mut records = trace.records();
        while let Some(record) = records.next() {
            state.take(&record);
            last_ns = record.monotonic_ns;
        }
        (state, last_ns)
    }
}

/// Always does the same: allocates and frees in turns, keeps something now and then, and tells much about it.
struct Job {
    random: u64,
    events: u64,
    addresses: Vec<u64>,
    is_in_region: HashMap<u32, bool>,
    is_in_operator: HashMap<u32, bool>,
    steps: u64,
    strings: u32,
}

/// Addresses are so far apart, and blocks no larger.
const BLOCK_BYTES: u64 = 1 << 20;
const MOST_BLOCKS: u64 = 400;

impl Job {
    fn new() -> Self {
        Self {
            random: 0x9e37_79b9_7f4a_7c15,
            events: 0,
            addresses: Vec::new(),
            is_in_region: HashMap::new(),
            is_in_operator: HashMap::new(),
            steps: 0,
            strings: 10,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Time, thread, stack and fact of the next event.
    fn next(&mut self) -> Record<'static> {
        self.events += 1;
        let thread_id = 1 + self.below(3) as u32;
        let fact = self.fact(thread_id);
        let native_stack = if matches!(fact, Fact::Allocation { .. }) { StackId(thread_id) } else { StackId::NONE };
        let monotonic_ns = FIRST_NS + self.events * INTERVAL_NS;
        Record { monotonic_ns, thread_id, native_stack, python_stack: StackId::NONE, fact }
    }

    fn fact(&mut self, thread_id: u32) -> Fact<'static> {
        let label = StringId(1 + self.below(9) as u32);
        let device = Device::Npu(0);
        match self.below(1000) {
            0 => {
                self.steps += 1;
                Fact::Step { device, number: self.steps }
            }
            1 => Fact::HeapRegistered { properties: caching(), address: self.below(8) << 30, size_bytes: self.events },
            2 => {
                self.strings += 1;
                Fact::DefineString { id: StringId(self.strings), text: b"weights" }
            }
            3 => Fact::AllocationFailed { properties: caching(), size_bytes: 1 << 40, flag: 0, error: 6 },
            4 => Fact::Recording { state: RecordingState::On },
            5..15 => {
                let is_in = self.is_in_region.entry(thread_id).or_default();
                *is_in = !*is_in;
                let label = StringId(3);
                if *is_in { Fact::LabelPush { level: 1, label } } else { Fact::LabelPop { level: 1, label } }
            }
            15..115 => {
                let is_in = self.is_in_operator.entry(thread_id).or_default();
                *is_in = !*is_in;
                let (framework, name, detail) = (Framework::Aten, StringId(thread_id), StringId::NONE);
                match *is_in {
                    true => Fact::OperatorBegin { framework, device, name, detail },
                    false => Fact::OperatorEnd { framework, device, name, detail },
                }
            }
            115..215 if !self.addresses.is_empty() => {
                let chosen = self.below(self.addresses.len() as u64) as usize;
                let address = self.addresses[chosen] + self.below(16);
                match self.below(3) {
                    0 => Fact::LabelAddress { address, level: 1 + self.below(3) as u32, label: StringId(5) },
                    1 => Fact::Holder { address, path: label },
                    _ => Fact::Access {
                        kind: AccessKind::Read,
                        framework: Framework::Aten,
                        device,
                        operator: label,
                        address,
                        size_bytes: 8,
                        element_type: StringId::NONE,
                        shape: StringId::NONE,
                        format: StringId::NONE,
                        output_position: 0,
                    },
                }
            }
            _ => {
                let address = (1 + self.below(MOST_BLOCKS)) * BLOCK_BYTES;
                let known = self.addresses.iter().position(|known| *known == address);
                match known {
                    // Now and then a free is lost.
                    Some(_) if self.below(200) == 0 => allocation(address, BLOCK_BYTES),
                    Some(position) => {
                        self.addresses.swap_remove(position);
                        free(address)
                    }
                    None => {
                        self.addresses.push(address);
                        allocation(address, 1024 + self.below(BLOCK_BYTES - 1024))
                    }
                }
            }
        }
    }
}

fn flight_recorder(recording: Recording, limit_bytes: u64) -> Threads {
    recording.file.keep_newest(limit_bytes);
    Threads::of(recording)
}

fn write(threads: &mut Threads, record: &Record<'_>) {
    while !threads.write_record(record) {
        assert!(threads.recording.file.compact(&[], record.monotonic_ns) > 0, "no room at {record:?}");
    }
}

/// Writes what thread 1 does next.
fn put_next(threads: &mut Threads, time_ns: &mut u64, fact: Fact<'_>) {
    *time_ns += INTERVAL_NS;
    let (native_stack, python_stack) = (StackId::NONE, StackId::NONE);
    write(threads, &Record { monotonic_ns: *time_ns, thread_id: 1, native_stack, python_stack, fact });
}

/// Runs events through a file of a size and holds what is left against the truth.
fn check_against_truth(events: u64, limit_bytes: u64) {
    let mut threads = flight_recorder(Recording::new(false, limit_bytes), limit_bytes);
    let (mut job, mut truth) = (Job::new(), State::default());
    for _ in 0..events {
        let record = job.next();
        truth.take(&record);
        write(&mut threads, &record);
    }
    let trace = threads.trace();
    let completeness = trace.completeness();
    assert!(completeness.file_bytes <= limit_bytes, "{}", completeness.file_bytes);
    assert!(completeness.is_complete());
    assert_eq!(completeness.records + completeness.records_left_out, events);
    let (state, _) = State::read(&trace);
    assert_eq!(state, truth);
    // Everything since the moment is there, and that is a good part of the file.
    let since_ns = completeness.complete_since_ns.expect("more than fits");
    let first = since_ns.div_ceil(INTERVAL_NS) - FIRST_NS.div_ceil(INTERVAL_NS);
    let mut records = trace.records();
    let mut times = Vec::new();
    while let Some(record) = records.next() {
        if record.monotonic_ns >= since_ns && !matches!(record.fact, Fact::Thread { .. }) {
            times.push(record.monotonic_ns);
        }
    }
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == INTERVAL_NS));
    assert!(times.len() as u64 >= events - first - 1, "{} of {events} since {first}", times.len());
    assert!(times.len() as u64 * 10 > limit_bytes / 4, "{} records are few", times.len());
}

#[test]
fn what_is_alive_stays_exact() {
    check_against_truth(5_000_000, RING_BYTES);
}

/// `make test-flight-recorder`.
#[test]
#[ignore = "takes minutes"]
fn a_hundred_million_events() {
    let started = Instant::now();
    check_against_truth(100_000_000, 64 << 20);
    println!("{:.1} s", started.elapsed().as_secs_f64());
}

#[test]
fn nothing_is_forgotten_before_there_is_no_room() {
    let mut threads = flight_recorder(Recording::new(false, RING_BYTES), RING_BYTES);
    let mut job = Job::new();
    for _ in 0..100_000 {
        let record = job.next();
        write(&mut threads, &record);
    }
    let trace = threads.trace();
    assert_eq!(trace.completeness().complete_since_ns, None);
    assert_eq!(trace.completeness().records, 100_000);
}

/// A block whose free is never seen costs a record, whatever happens at its address from then on.
#[test]
fn a_lost_free_costs_a_record() {
    let mut threads = flight_recorder(Recording::new(false, RING_BYTES), RING_BYTES);
    let mut time_ns = FIRST_NS;
    let mut put = |fact: Fact<'_>| put_next(&mut threads, &mut time_ns, fact);
    for _ in 0..2_000_000 {
        put(allocation(0x1000, 8)); // Never freed, always replaced.
        put(allocation(0x2000, 8));
        put(free(0x2000));
        put(free(0x3000)); // Never allocated.
    }
    let trace = threads.trace();
    let since_ns = trace.completeness().complete_since_ns.expect("more than fits");
    let (mut records, mut old) = (trace.records(), 0);
    while let Some(record) = records.next() {
        old += u64::from(record.monotonic_ns < since_ns && !matches!(record.fact, Fact::Thread { .. }));
    }
    // The block, the one that it replaced, and the other one if it was alive at the moment.
    assert!(old <= 3, "{old} records of the past");
}

/// Work that operators prepare passes like the kernels that it launches; kernels of graphs run again at any time.
#[test]
fn kernels_pass_but_those_of_graphs() {
    let mut threads = flight_recorder(Recording::new(false, RING_BYTES), RING_BYTES);
    let mut time_ns = FIRST_NS;
    let mut put = |fact: Fact<'_>| put_next(&mut threads, &mut time_ns, fact);
    let (device, name, stream_id) = (Device::Npu(0), StringId(7), 3);
    put(Fact::KernelCaptured { device, name, stream_id, task_id: 5 });
    for task_id in 0..600_000 {
        let address = u64::from(task_id % 100);
        put(Fact::PreparedWork { phase: WorkPhase::Prepared, address });
        put(Fact::PreparedWork { phase: WorkPhase::Begins, address });
        put(Fact::Kernel { phase: KernelPhase::Launch, device, name, stream_id, task_id, detail: StringId::NONE });
        put(Fact::PreparedWork { phase: WorkPhase::Ends, address });
    }
    let trace = threads.trace();
    let since_ns = trace.completeness().complete_since_ns.expect("more than fits");
    let (mut records, mut old) = (trace.records(), Vec::new());
    while let Some(record) = records.next() {
        if record.monotonic_ns < since_ns && !matches!(record.fact, Fact::Thread { .. }) {
            old.push(format!("{:?}", record.fact));
        }
    }
    assert_eq!(old, [format!("{:?}", Fact::KernelCaptured { device, name, stream_id, task_id: 5 })]);
}

/// Frees of the driver say neither device nor kind of the memory.
#[test]
fn blocks_are_found_as_the_timeline_finds_them() {
    let mut threads = flight_recorder(Recording::new(false, RING_BYTES), RING_BYTES);
    let mut time_ns = FIRST_NS;
    let driver = |device| BlockProperties { device, ..BlockProperties::from_driver_flag(1 << 10) };
    let host = BlockProperties::from_driver_flag(2 << 10);
    let mut put = |fact: Fact<'_>| put_next(&mut threads, &mut time_ns, fact);
    let begin = |properties, address| Fact::Allocation { properties, address, size_bytes: 512 };
    let end = |properties, address| Fact::Free { properties, address };
    let with_handle = |handle| {
        let properties = BlockProperties::framework(Pool::Atb, Device::Npu(0));
        Fact::AllocationWithHandle { properties, address: handle << 20, size_bytes: 8, handle }
    };
    let heap = BlockProperties::framework(Pool::Atb, Device::Npu(0));
    put(Fact::HeapRegistered { properties: heap, address: 1, size_bytes: 1 });
    put(Fact::HeapRegistered { properties: heap, address: 2, size_bytes: 2 });
    put(begin(driver(Device::Npu(3)), 0x10)); // stays
    put(begin(driver(Device::Npu(3)), 0x20));
    put(end(driver(Device::Unknown), 0x20));
    put(begin(host, 0x30));
    put(end(driver(Device::Unknown), 0x30));
    put(begin(driver(Device::Npu(0)), 0x40)); // stays
    put(end(driver(Device::Npu(1)), 0x40)); // of another card
    put(with_handle(5)); // stays
    put(with_handle(6));
    put(Fact::FreeByHandle { properties: heap, handle: 6 });
    put(Fact::HeapUnregistered { properties: heap, address: 1 });
    put(Fact::RangeBegin { domain: StringId::NONE, device: Device::Npu(0), range_id: 7, message: b"open" }); // stays
    put(Fact::RangeBegin { domain: StringId::NONE, device: Device::Npu(0), range_id: 8, message: b"over" });
    put(Fact::RangeEnd { domain: StringId::NONE, device: Device::Npu(0), range_id: 8 });
    for _ in 0..1_000_000 {
        put(allocation(0x2000, 8));
        put(free(0x2000));
    }
    let trace = threads.trace();
    let since_ns = trace.completeness().complete_since_ns.expect("more than fits");
    let (mut records, mut old) = (trace.records(), Vec::new());
    while let Some(record) = records.next() {
        if record.monotonic_ns < since_ns && !matches!(record.fact, Fact::Thread { .. }) {
            old.push((record.monotonic_ns - FIRST_NS) / INTERVAL_NS);
        }
    }
    assert_eq!(old, [2, 3, 8, 10, 14]);
}

/// What is alive and does not fit is an end of recording, not of what is there.
#[test]
fn more_than_fits_is_refused() {
    let threads = &mut flight_recorder(Recording::new(false, RING_BYTES), RING_BYTES);
    let (native_stack, python_stack) = (StackId::NONE, StackId::NONE);
    let record = |number: u64| Record {
        monotonic_ns: FIRST_NS + number,
        thread_id: 1,
        native_stack,
        python_stack,
        fact: allocation(number << 20, 1),
    };
    let mut written = 0;
    while threads.write_record(&record(written)) || threads.recording.file.compact(&[], written) > 0 {
        written += 1;
    }
    let (state, _) = State::read(&threads.trace());
    assert!(state.live.len() as u64 >= written - 1, "{} of {written}", state.live.len());
}

/// A copy of a moment has what was written until then, whatever else is going on.
#[test]
fn a_copy_of_a_moment_is_exact() {
    let home = tempfile::tempdir().expect("temporary directory");
    let mut threads = flight_recorder(Recording::new(false, RING_BYTES), RING_BYTES);
    let (mut job, mut truth) = (Job::new(), State::default());
    let mut moment_ns = 0;
    for number in 0..1_500_000 {
        let record = job.next();
        write(&mut threads, &record);
        if number < 1_400_000 {
            truth.take(&record);
            moment_ns = record.monotonic_ns;
        }
    }
    let copy = home.path().join("copy.trace");
    copy_moment(&threads.recording.path, &copy, moment_ns).expect("copied");
    let trace = Trace::open(&copy).expect("a trace");
    let completeness = trace.completeness();
    assert!(completeness.is_moment && completeness.damage.is_empty() && completeness.complete_since_ns.is_some());
    assert_eq!(State::read(&trace), (truth, moment_ns));
    let again = copy_moment(&threads.recording.path, &copy, moment_ns).expect_err("nothing is written over");
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
}

const CHILD_VARIABLE: &str = "MSMEMSCOPE_TEST_FLIGHT_RECORDER";

/// The job of the next test, which kills it. Alone it does nothing.
#[test]
fn endless_job() {
    let Some(path) = std::env::var_os(CHILD_VARIABLE) else { return };
    const SMALL_BYTES: u64 = 4 << 20;
    let mut threads = flight_recorder(Recording::at(PathBuf::from(path), SMALL_BYTES), SMALL_BYTES);
    let mut job = Job::new();
    loop {
        let record = job.next();
        write(&mut threads, &record);
    }
}

#[test]
fn a_kill_at_any_moment_leaves_the_exact_state() {
    let home = tempfile::tempdir().expect("temporary directory");
    for round in 0..8u32 {
        let path = home.path().join(format!("{round}.trace"));
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "flight_recorder::endless_job", "--nocapture"])
            .env(CHILD_VARIABLE, &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a child");
        wait_until_it_forgets(&path);
        // Not a multiple of anything that happens in there.
        std::thread::sleep(Duration::from_micros(u64::from(round) * 7_411));
        child.kill().expect("killed");
        child.wait().expect("gone");
        let trace = Trace::open(&path).expect("a trace");
        assert_eq!(trace.completeness().damage, []);
        assert!(trace.completeness().complete_since_ns.is_some());
        let (state, last_ns) = State::read(&trace);
        let (mut job, mut truth) = (Job::new(), State::default());
        for _ in 0..(last_ns - FIRST_NS) / INTERVAL_NS {
            truth.take(&job.next());
        }
        assert_eq!(state, truth, "round {round}");
        std::fs::remove_file(&path).expect("removed");
    }
}

fn wait_until_it_forgets(path: &Path) {
    const COMPLETE_SINCE_NS: u64 = 96;
    let started = Instant::now();
    let mut since = [0; 8];
    while since == [0; 8] {
        assert!(started.elapsed() < Duration::from_secs(60), "the child does not get there");
        std::thread::sleep(Duration::from_micros(200));
        if let Ok(file) = File::open(path) {
            let _ = file.read_exact_at(&mut since, COMPLETE_SINCE_NS);
        }
    }
}

//! How fast questions are answered: `analysis_speed [millions of events] [question]`.
//!
//! Records a training-like run (steps, operators, accesses, allocations and frees of a caching
//! allocator, with stacks) and asks every question alone and all of them in one pass, then compares two
//! recordings of a million events that differ in one percent of their operators. Prints JSON; times are
//! processor time.

use std::path::Path;

use made_recordings::{DEVICE, Recorder};
use msmemscope_analysis::compare::{Level, Part, SharedNames, compare, profile};
use msmemscope_analysis::{Questions, analyze};
use msmemscope_event::{AccessKind, BlockProperties, Fact, Pool, StackId, StringId};
use msmemscope_import::open;

const OPERATOR_NAMES: u32 = 120;
const STACKS: u64 = 5000;
const LIVE_BLOCKS: usize = 30_000;
const EVENTS_PER_STEP: u64 = 40_000;
/// Time from one event to the next.
const STEP_NS: u64 = 90;

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Records a run. Every `change_every`th operator gets another name.
fn make_recording(directory: &Path, events: u64, change_every: u64) {
    let mut recorder = Recorder::create(directory, 7, STEP_NS);
    let names: Vec<StringId> =
        (1..=OPERATOR_NAMES).map(|id| recorder.string(&format!("aten.operator_{id}.default"))).collect();
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    let mut numbers = Numbers(88_172_645_463_325_252);
    let mut live: Vec<u64> = Vec::new();
    let mut free: Vec<u64> = Vec::new();
    let (mut next_address, mut range_id, mut operators) = (0u64, 0u64, 0u64);
    let mut next_step = 0;
    while recorder.events() < events {
        if recorder.events() >= next_step {
            next_step = recorder.events() + EVENTS_PER_STEP;
            if range_id > 0 {
                recorder.step_ends(range_id);
            }
            range_id += 1;
            recorder.step_begins(range_id);
        }
        operators += 1;
        let mut name = (numbers.next() % u64::from(OPERATOR_NAMES)) as usize;
        if change_every > 0 && operators.is_multiple_of(change_every) {
            name = (name + 1) % names.len();
        }
        let (name, choice) = (names[name], numbers.next());
        recorder.operate(name, |recorder| {
            if live.len() >= LIVE_BLOCKS || (choice & 1 == 0 && live.len() > 100) {
                let address = live.swap_remove((choice >> 8) as usize % live.len());
                free.push(address);
                recorder.record(StackId::NONE, &Fact::Free { properties, address });
            }
            if live.len() < LIVE_BLOCKS {
                let address = free.pop().unwrap_or_else(|| {
                    next_address += 0x20_0000;
                    next_address
                });
                live.push(address);
                let stack = StackId(1 + (choice >> 20) as u32 % STACKS as u32);
                let size_bytes = 512 * (1 + (choice >> 32) % 4000);
                recorder.record(stack, &Fact::Allocation { properties, address, size_bytes });
            }
            recorder.touch(name, AccessKind::Read, live[(choice >> 40) as usize % live.len()]);
        });
    }
    recorder.close();
}

fn resident_mebibytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Seconds of processor time of this process: other work on the machine does not count.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Every question alone and all of them together.
fn question_sets() -> Vec<(&'static str, Questions)> {
    let all = Questions::all();
    let none = Questions::default();
    vec![
        ("none (events only)", none.clone()),
        ("leaks", Questions { leaks: true, fluctuation: true, ..none.clone() }),
        ("owners", Questions { owners: all.owners, ..none.clone() }),
        ("inefficient use", Questions { inefficient: all.inefficient.clone(), ..none.clone() }),
        ("out of memory", Questions { out_of_memory: all.out_of_memory, ..none.clone() }),
        ("fragmentation", Questions { fragmentation: true, ..none }),
        ("everything", all),
    ]
}

fn compare_speed(directory: &Path) -> serde_json::Value {
    let (base, other) = (directory.join("base"), directory.join("other"));
    make_recording(&base, 1_000_000, 0);
    make_recording(&other, 1_000_000, 100);
    let start = processor_seconds();
    let mut names = SharedNames::default();
    let left = profile(&open(&base).expect("a recording").recordings, Level::Operator, Part::Everything, &mut names);
    let right = profile(&open(&other).expect("a recording").recordings, Level::Operator, Part::Everything, &mut names);
    let profiled = processor_seconds();
    let comparison = compare(&left, &right, &names).expect("something to compare");
    serde_json::json!({
        "seconds": processor_seconds() - start,
        "aligning_seconds": processor_seconds() - profiled,
        "rows": comparison.rows.len(),
    })
}

fn main() {
    let millions: f64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10.0);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let large = directory.path().join("large");
    make_recording(&large, (millions * 1e6) as u64, 0);
    let imported = open(&large).expect("a recording");
    let mut measured = Vec::new();
    let wanted = std::env::args().nth(2);
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    for (name, questions) in question_sets().into_iter().filter(|(name, _)| is_wanted(name)) {
        let start = processor_seconds();
        let answers = analyze(&imported.recordings[0], &questions, &mut |_, _| {});
        let events = answers.summary.events_shown;
        measured.push(serde_json::json!({
            "name": name,
            "events": events,
            "events_per_second": events as f64 / (processor_seconds() - start),
            "resident_mebibytes": resident_mebibytes(),
        }));
    }
    let comparison = compare_speed(directory.path());
    println!("{:#}", serde_json::json!({ "questions": measured, "compare": comparison }));
}

//! Who holds blocks, in reports about leaks, moments and failures.

use msmemscope_analysis::Questions;
use msmemscope_analysis::grouping::Grouping;
use msmemscope_analysis::holders::HeldBy;
use msmemscope_analysis::moment::MomentQuestion;
use msmemscope_event::{BlockProperties, Device, Fact, Pool, StringId};
use msmemscope_report as text;

use crate::support::Traced;

const DEVICE: Device = Device::Npu(0);
const BLOCK_BYTES: u64 = 0x200;

fn pool() -> BlockProperties {
    BlockProperties::framework(Pool::PytorchCaching, DEVICE)
}

fn allocate(trace: &mut Traced, address: u64) {
    trace.record(Fact::Allocation { properties: pool(), address, size_bytes: BLOCK_BYTES });
}

fn held(path: &str, blocks: u64) -> HeldBy {
    HeldBy { path: path.to_owned(), blocks, bytes: blocks * BLOCK_BYTES }
}

/// A block per step at 0x1000, 0x2000, ...; after steps 2 and 4 the job looks at what it has.
fn growing_job() -> (Traced, StringId) {
    let mut trace = Traced::new();
    let paths = ["local 'history' of main > list of 2", "local 'history' of main > list of 4"];
    let [first, second] = paths.map(|path| trace.string(path));
    for step in 1..=6 {
        allocate(&mut trace, step * 0x1000);
        trace.record(Fact::Step { device: DEVICE, number: step });
        let path = match step {
            2 => first,
            4 => second,
            _ => continue,
        };
        for seen in 1..=step {
            // A tensor may start behind the start of its block.
            trace.record(Fact::Holder { address: seen * 0x1000 + 0x20, path });
        }
    }
    (trace, second)
}

#[test]
fn what_a_hook_has_put_aside_is_its_doing() {
    let said = |path: &str| {
        let mut trace = Traced::new();
        let path = trace.string(path);
        for step in 1..=6 {
            allocate(&mut trace, step * 0x1000);
            trace.record(Fact::Holder { address: step * 0x1000, path });
            trace.record(Fact::Step { device: DEVICE, number: step });
        }
        text::headline::headline(&trace.ask(&Questions::all())).join(" ")
    };
    let list = "local 'spy' of main > Spy.seen > list of 8";
    assert!(said(&format!("{list} via forward hook on blocks.3")).starts_with("Leak: a hook keeps what it sees: "));
    assert!(said(list).starts_with("Leak: 512 B more with every step"), "{}", said(list));
}

#[test]
fn leaks_and_moments_name_the_holder_that_was_seen_last() {
    let (trace, _) = growing_job();
    let answers = trace.ask(&Questions::all());
    let headline = text::headline::headline(&answers).join(" ");
    assert!(headline.contains(" Held by local 'history' of main > list of 4."), "{headline}");
    let leaks = answers.leaks.unwrap().leaks;
    assert_eq!(leaks[0].count, 4, "{leaks:?}");
    assert_eq!(leaks[0].held_by, [held("local 'history' of main > list of 4", 3)], "of steps 2 to 4");
    let moments = answers.moments.unwrap();
    assert_eq!(moments.pools[0].lines[0].held_by, [held("local 'history' of main > list of 4", 4)]);
    let said = "Held by, when the job was looked at:\n    2.0 KiB in 4 blocks: local 'history' of main > list of 4\n";
    let at_peak = text::moments(&moments);
    assert!(at_peak.contains(said), "{at_peak}");
}

#[test]
fn blocks_of_several_looks_are_not_counted_together() {
    let mut trace = Traced::new();
    let path = trace.string("local 'model' of main > parameters of GPT > gradient");
    for step in 1..=3 {
        for block in 0..4 {
            allocate(&mut trace, 0x1000 + block * 0x1000);
        }
        for block in 0..4 {
            trace.record(Fact::Holder { address: 0x1000 + block * 0x1000, path });
        }
        trace.record(Fact::Step { device: DEVICE, number: step });
        for block in 0..4 {
            trace.record(Fact::Free { properties: pool(), address: 0x1000 + block * 0x1000 });
        }
    }
    // The same line holds more at its peak than the job has looked at.
    (0..6).for_each(|block| allocate(&mut trace, 0x1000 + block * 0x1000));
    let moments = trace.ask(&Questions::all()).moments.unwrap();
    let line = &moments.pools[0].lines[0];
    assert_eq!(line.blocks, 6, "{line:?}");
    assert_eq!(line.held_by, [held("local 'model' of main > parameters of GPT > gradient", 4)]);
}

#[test]
fn no_more_is_held_than_there_is() {
    let mut trace = Traced::new();
    let paths = ["local 'a' of main", "local 'b' of main"];
    let paths = paths.map(|path| trace.string(path));
    for (step, path) in (1..).zip(paths) {
        (0..3).for_each(|block| allocate(&mut trace, 0x1000 + block * 0x1000));
        for block in 0..3 - (step - 1) {
            trace.record(Fact::Holder { address: 0x1000 + block * 0x1000, path });
        }
        trace.record(Fact::Step { device: DEVICE, number: step });
        for block in 0..3 {
            trace.record(Fact::Free { properties: pool(), address: 0x1000 + block * 0x1000 });
        }
    }
    let moments = trace.ask(&Questions::all()).moments.unwrap();
    assert_eq!(moments.pools[0].lines[0].blocks, 3);
    assert_eq!(moments.pools[0].lines[0].held_by, [held("local 'a' of main", 3)], "two more would be five");
}

#[test]
fn a_block_at_the_same_address_has_other_holders() {
    let (mut trace, path) = growing_job();
    for address in [0x2000, 0x3000, 0x4000] {
        trace.record(Fact::Free { properties: pool(), address });
        allocate(&mut trace, address);
    }
    trace.record(Fact::Holder { address: 0x9_0000, path });
    for number in 7..=9 {
        trace.record(Fact::Step { device: DEVICE, number });
    }
    let leaks = trace.ask(&Questions::all()).leaks.unwrap();
    let groups = [leaks.leaks, leaks.possible_leaks, leaks.retained_once].concat();
    assert!(groups.iter().all(|group| group.held_by.is_empty()), "{groups:?}");
}

#[test]
fn holders_seen_right_after_a_failure_belong_to_it() {
    let mut trace = Traced::new();
    let driver = BlockProperties::framework(Pool::Hal, DEVICE);
    trace.record(Fact::Allocation { properties: driver, address: 0x1000_0000, size_bytes: 2 << 20 });
    for block in 0..8 {
        allocate(&mut trace, 0x1000_0000 + block * 0x1000);
    }
    trace.record(Fact::AllocationFailed { properties: driver, size_bytes: 1 << 30, flag: 0, error: 6 });
    let path = trace.string("local 'batches' of grow > list of 8");
    for block in 0..8 {
        trace.record(Fact::Holder { address: 0x1000_0000 + block * 0x1000, path });
    }
    let report = trace.ask(&Questions { out_of_memory: Some(3), ..Questions::default() }).out_of_memory.unwrap();
    let said = text::out_of_memory(&report);
    assert!(said.contains("4.0 KiB in 8 blocks: local 'batches' of grow > list of 8\n"), "{said}");
    let failure = report.decisive().unwrap();
    let expected = [held("local 'batches' of grow > list of 8", 8)];
    assert_eq!(failure.held_by, expected);
    assert_eq!(failure.growing.as_ref().unwrap().held_by, expected);
    assert_eq!(failure.recent[0].held_by.as_deref(), Some("local 'batches' of grow > list of 8"));
    let segment = failure.largest.iter().find(|block| block.pool == Pool::Hal).unwrap();
    assert_eq!(segment.held_by, None, "only tensors are held by variables");
}

#[test]
fn what_leaked_is_not_put_down_to_who_holds_the_largest_block() {
    let mut trace = Traced::new();
    let [big, kept] =
        ["global 'big' (train.py:5)", "global 'kept' (train.py:9) > list of 6"].map(|path| trace.string(path));
    let driver = BlockProperties::framework(Pool::Hal, DEVICE);
    trace.record(Fact::Allocation { properties: driver, address: 0x1000_0000, size_bytes: 2 << 20 });
    let allocate = |trace: &mut Traced, address, size_bytes, function, line| {
        let fact = Fact::Allocation { properties: pool(), address, size_bytes };
        trace.record_at_line(fact, function, "/me/train.py", line);
    };
    allocate(&mut trace, 0x1000_0000, 1 << 20, "<module>", 5);
    for step in 1..=6 {
        allocate(&mut trace, 0x1010_0000 + step * 0x1_0000, 0x1_0000, "grow", 10);
        trace.record(Fact::Step { device: DEVICE, number: step });
    }
    trace.record(Fact::AllocationFailed { properties: driver, size_bytes: 0x1_0000, flag: 0, error: 6 });
    trace.record(Fact::Holder { address: 0x1000_0000, path: big });
    for step in 1..=6 {
        trace.record(Fact::Holder { address: 0x1010_0000 + step * 0x1_0000, path: kept });
    }
    let answers = trace.ask(&Questions::all());
    let said = text::headline::headline(&answers)[0].clone();
    let expected = "; 384 KiB of 1.4 MiB are held by blocks allocated at /me/train.py:10 grow. \
                    Held by global 'kept' (train.py:9) > list of 6.";
    assert!(said.ends_with(expected), "{said}");
    let cause = &text::causes::causes(&answers)[0];
    assert_eq!(cause.held_by.as_deref(), Some("global 'kept' (train.py:9) > list of 6"));
}

#[test]
fn who_holds_blocks_tells_owners_where_the_job_recorded_none() {
    let mut trace = Traced::new();
    let model = "local 'model' of main (train.py:3) > parameters of GPT";
    let [weight, gradient] = [model.to_owned(), format!("{model} > gradient")].map(|path| trace.string(&path));
    for (number, path) in [Some(weight), Some(weight), Some(gradient), None].into_iter().enumerate() {
        let address = 0x1000 * (number as u64 + 1);
        allocate(&mut trace, address);
        if let Some(path) = path {
            trace.record(Fact::Holder { address, path });
        }
    }
    let moments = MomentQuestion { by: Grouping::Owner, ..MomentQuestion::at_peak() };
    let report = trace.ask(&Questions { moments, ..Questions::default() }).moments.expect("asked");
    let said = text::moments(&report);
    let pool = &report.pools[0].tree[0];
    assert_eq!((&pool.name[..], pool.blocks), ("PTA", 4), "{said}");
    let parts = pool.children[0].children.iter().map(|part| (&part.name[..], part.blocks)).collect::<Vec<_>>();
    assert_eq!((&pool.children[0].name[..], parts), ("model", vec![("weight", 2), ("gradient", 1)]), "{said}");
}

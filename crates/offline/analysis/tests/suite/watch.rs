//! Watched blocks: what changed without being declared, and who did it.

use msmemscope_analysis::Questions;
use msmemscope_analysis::watch::WatchReport;
use msmemscope_event::{
    BlockProperties, ByteRange, Device, Fact, Pool, StringId, WatchCoverage, WatchDetail, WatchNote,
};
use msmemscope_report as text;

use crate::support::Traced;

const DEVICE: Device = Device::Npu(0);
const BASE: u64 = 0x1000_0000;

/// A recording with a few blocks, one behind the other, and looks at them.
struct Lab {
    trace: Traced,
}

impl Lab {
    fn new(blocks: u64) -> Self {
        let mut trace = Traced::new();
        let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
        for index in 0..blocks {
            trace.record(Fact::Allocation { properties, address: BASE + 1024 * index, size_bytes: 1024 });
        }
        Self { trace }
    }

    fn record(&mut self, fact: Fact<'_>) {
        self.trace.record(fact);
    }

    fn string(&mut self, text: &str) -> StringId {
        self.trace.string(text)
    }

    fn look(&mut self, name: StringId, operator: StringId, after: bool, block: u64, detail: &WatchDetail) {
        let detail = WatchDetail { device: DEVICE, piece_bytes: 512, ..detail.clone() }.to_text();
        self.record(Fact::Watch {
            name,
            operator,
            output_position: 0,
            after,
            address: BASE + 1024 * block,
            size_bytes: 1024,
            content_hash: 1,
            detail: detail.as_bytes(),
        });
    }

    fn dump(&self, name: &str, contents: &[u8]) {
        let directory = self.trace.directory.path().join("device_0/watch_dump");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(name), contents).unwrap();
    }

    fn ask(self) -> Option<WatchReport> {
        self.trace.ask(&Questions { watch: true, ..Questions::default() }).watch
    }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn since(operator: &str, after: bool, operators: u64) -> WatchDetail {
    WatchDetail {
        since_operator: operator.to_owned(),
        since_after: after,
        operators_since: operators,
        call: 1,
        ..WatchDetail::default()
    }
}

/// The report as one line; its lines must fit.
fn fits(report: &WatchReport) -> String {
    let text = text::watch(report);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn without_looks_there_is_no_report() {
    assert_eq!(Lab::new(1).ask(), None);
}

#[test]
fn the_operator_that_wrote_too_far_is_named() {
    let mut lab = Lab::new(3);
    let (name, operator) = (lab.string("weight"), lab.string("torch._ops.npu.bad.default"));
    lab.look(name, StringId::NONE, true, 1, &WatchDetail { note: WatchNote::Begin, ..WatchDetail::default() });
    lab.look(name, operator, false, 1, &since("", true, 0));
    let changed = WatchDetail {
        changed: vec![range(0, 512)],
        writes: vec![range(BASE, BASE + 1000)],
        ..since("torch._ops.npu.bad.default", false, 1)
    };
    lab.look(name, operator, true, 1, &changed);
    lab.look(name, operator, true, 1, &WatchDetail { note: WatchNote::Freed, ..WatchDetail::default() });
    let report = lab.ask().expect("a report");
    let block = &report.blocks[0];
    assert_eq!((block.looks, block.declared_changes, block.corruptions.len()), (2, 0, 1));
    assert_eq!(block.end.as_ref().map(|end| end.reason), Some("freed"));
    let corruption = &block.corruptions[0];
    assert!(corruption.is_by_operator && !corruption.is_exact);
    let beside: Vec<(bool, u64, bool)> = corruption
        .neighbours
        .iter()
        .map(|neighbour| (neighbour.is_below, neighbour.address, neighbour.is_written))
        .collect();
    assert_eq!(beside, [(true, BASE, true), (false, BASE + 2048, false)]);
    let text = fits(&report);
    assert!(text.starts_with("Watched memory: 1 CHANGE THAT NO OPERATOR DECLARED. "), "{text}");
    assert!(text.contains("changed during npu.bad.default (call 1)"), "{text}");
    assert!(text.contains("right below: 1.0 KiB at 0x10000000, written by this operator"), "{text}");
    assert!(text.contains("probably writes past its end"), "{text}");
}

#[test]
fn declared_changes_are_fine() {
    let mut lab = Lab::new(1);
    let (name, operator) = (lab.string("weight"), lab.string("add_"));
    lab.look(name, operator, false, 0, &since("", true, 0));
    let changed =
        WatchDetail { changed: vec![range(0, 1024)], declared: vec![range(0, 1000)], ..since("add_", false, 1) };
    lab.look(name, operator, true, 0, &changed);
    let report = lab.ask().expect("a report");
    assert_eq!((report.blocks[0].declared_changes, report.corruptions().count()), (1, 0));
    assert!(fits(&report).starts_with("Watched memory: no change that no operator declared. "));
}

#[test]
fn dumped_contents_tell_the_exact_bytes() {
    let mut lab = Lab::new(1);
    let (name, operator) = (lab.string("weight"), lab.string("add_"));
    let mut contents = vec![0; 1024];
    lab.dump("before.bin", &contents);
    contents[0..100].fill(1);
    contents[120..124].fill(2);
    lab.dump("after.bin", &contents);
    let with_file = |file: &str, detail: WatchDetail| WatchDetail { file: Some(file.to_owned()), ..detail };
    lab.look(name, operator, false, 0, &with_file("before.bin", since("", true, 0)));
    let changed =
        WatchDetail { changed: vec![range(0, 512)], declared: vec![range(0, 100)], ..since("add_", false, 1) };
    lab.look(name, operator, true, 0, &with_file("after.bin", changed));
    let report = lab.ask().expect("a report");
    let corruption = &report.blocks[0].corruptions[0];
    assert_eq!((corruption.spans[0].start, corruption.spans[0].end, corruption.changed_bytes), (120, 124, 4));
    assert!(corruption.is_exact && fits(&report).contains("bytes: 120-124 (4 B in all)"));
}

#[test]
fn changes_between_operators_and_over_several_are_told_apart() {
    let mut lab = Lab::new(2);
    let (name, next) = (lab.string("weight"), lab.string("mul"));
    lab.look(name, next, false, 0, &WatchDetail { changed: vec![range(0, 512)], ..since("add", true, 0) });
    lab.look(StringId::NONE, next, true, 1, &WatchDetail { changed: vec![range(0, 512)], ..since("add", true, 3) });
    let coverage = WatchCoverage {
        operators: 4,
        looks_due: 8,
        looks_taken: 5,
        hashed_bytes: 5120,
        blind_operators: 1,
        longest_gap: 3,
        kernels: 0,
    };
    let detail = WatchDetail { coverage: Some(coverage), note: WatchNote::Coverage, ..WatchDetail::default() };
    lab.look(StringId::NONE, StringId::NONE, true, 0, &WatchDetail { is_blocking: false, ..detail });
    let report = lab.ask().expect("a report");
    let text = fits(&report);
    assert!(text.contains("changed between add and mul: no operator"), "{text}");
    assert!(text.contains("changed somewhere after add and up to mul (3 operators in between"), "{text}");
    assert!(text.contains("5 of 8 looks at live blocks taken (62.5 %)"), "{text}");
    assert!(text.contains("shows up to 3 operators late, or not at all"), "{text}");
    assert!(text.contains("Nothing could be looked at around 1 operators."), "{text}");
    assert!(text.contains("ASCEND_LAUNCH_BLOCKING was not 1"), "{text}");
}

#[test]
fn whose_memory_a_block_had_is_told() {
    let mut lab = Lab::new(3);
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    let reused = BASE + 1024;
    for _ in 0..2 {
        lab.record(Fact::Free { properties, address: reused });
        lab.record(Fact::Allocation { properties, address: reused, size_bytes: 1024 });
    }
    let (name, next) = (lab.string("weight"), lab.string("mul"));
    for block in [1, 2] {
        lab.look(name, next, false, block, &WatchDetail { changed: vec![range(0, 512)], ..since("add", true, 0) });
    }
    let report = lab.ask().expect("a report");
    let earlier: Vec<_> = report.corruptions().map(|corruption| corruption.earlier.as_ref()).collect();
    let told = earlier[0].expect("freed and used again");
    assert_eq!((told.address, told.size_bytes, told.freed_before_ns), (reused, 1024, 10), "the latest of both");
    assert_eq!(earlier[1], None, "nobody had this memory before");
    let text = fits(&report);
    assert!(text.contains("memory before: 1.0 KiB at 0x10000400, freed 10.0ns earlier"), "{text}");
    assert_eq!(text.matches("may have ended too late").count(), 1, "{text}");
}

#[test]
fn a_hunt_through_blocks_of_an_owner_says_whose_they_are() {
    let mut lab = Lab::new(2);
    let cover = |looks| WatchDetail {
        coverage: Some(WatchCoverage {
            operators: 9,
            looks_due: looks,
            looks_taken: looks,
            ..WatchCoverage::default()
        }),
        note: WatchNote::Coverage,
        owner: Some("weight".to_owned()),
        ..WatchDetail::default()
    };
    lab.look(StringId::NONE, StringId::NONE, true, 0, &cover(0));
    let report = lab.ask().expect("a report");
    assert_eq!(report.hunt.as_ref().and_then(|hunt| hunt.owner.as_deref()), Some("weight"));
    assert!(fits(&report).contains("NO BLOCK HAD THIS LABEL"), "{}", fits(&report));
    let mut lab = Lab::new(2);
    lab.look(StringId::NONE, StringId::NONE, true, 0, &cover(12));
    let text = fits(&lab.ask().expect("a report"));
    assert!(text.contains("12 of 12 looks at live blocks of 'weight' taken (100.0 %)"), "{text}");
    assert!(!text.contains("NO BLOCK"), "{text}");
}

//! Blocks that somebody named.

use msmemscope_event::{ByteRange, WatchNote};
use msmemscope_watch::checksum::checksum;
use msmemscope_watch::operator_name::OperatorPattern;
use msmemscope_watch::{Explicit, Output, Selection, Target};

use crate::support::{BASE, DEVICE, Lab, call};

fn target(name: &str, address: u64, size_bytes: u64) -> Target {
    Target { name: name.to_owned(), address, size_bytes, device: DEVICE, most_dumps: None }
}

fn run(explicit: &mut Explicit, lab: &mut Lab, name: &str, work: impl FnOnce(&mut Lab)) {
    let blocks = lab.blocks.clone();
    explicit.before(&call(name, &[]), &blocks, lab);
    work(lab);
    let blocks = lab.blocks.clone();
    explicit.after(&call(name, &[]), &[], &blocks, lab);
}

fn selection(start: Option<&str>, end: Option<&str>) -> Selection {
    let pattern = |text: Option<&str>| text.map(OperatorPattern::new);
    Selection { start: pattern(start), end: pattern(end), ..Selection::default() }
}

#[test]
fn outputs_are_watched_from_start_to_end() {
    let mut lab = Lab::new(&[512, 512, 512]);
    let mut explicit = Explicit::new(Selection { output_index: Some(1), ..selection(Some("a"), Some("c")) });
    assert!(explicit.is_waiting() && !explicit.is_watching());
    run(&mut explicit, &mut lab, "x.y.z", |_| {});
    assert!(lab.taken.is_empty(), "nothing before the start");
    let outputs =
        [0, 1].map(|index| Output { index, address: BASE + 512 * u64::from(index), size_bytes: 100, device: DEVICE });
    let blocks = lab.blocks.clone();
    explicit.before(&call("a", &[]), &blocks, &mut lab);
    explicit.after(&call("a", &[]), &outputs, &blocks, &mut lab);
    run(&mut explicit, &mut lab, "b", |lab| lab.write(BASE + 512, 4, 9));
    run(&mut explicit, &mut lab, "c", |_| {});
    assert!(!explicit.is_waiting(), "the end operator ends it for good");
    run(&mut explicit, &mut lab, "a", |_| {});
    let seen: Vec<(&str, bool, u32)> =
        lab.taken.iter().map(|taken| (&taken.operator[..], taken.after, taken.output_index)).collect();
    assert_eq!(
        seen,
        [("a", true, 1), ("b", false, 1), ("b", true, 1), ("c", false, 1), ("c", true, 1), ("c", true, 1)]
    );
    assert!(lab.taken.iter().all(|taken| taken.name == "a" && taken.address == BASE + 512));
    let changed: Vec<bool> = lab.taken.iter().map(|taken| !taken.detail.changed.is_empty()).collect();
    assert_eq!(changed, [false, false, true, false, false, false]);
    let after = &lab.taken[2].detail;
    assert_eq!((&after.since_operator[..], after.since_after, after.operators_since), ("b", false, 1));
    assert_eq!(after.changed, [ByteRange { start: 0, end: 100 }]);
    assert_eq!(after.checksum, Some(checksum(&lab.memory[512..612])));
    assert_eq!(lab.taken[5].detail.note, WatchNote::EndReached);
}

#[test]
fn a_missing_output_is_named() {
    let mut lab = Lab::new(&[512]);
    let mut explicit = Explicit::new(Selection { output_index: Some(4), ..selection(Some("a"), Some("c")) });
    run(&mut explicit, &mut lab, "a", |_| {});
    assert_eq!(lab.said, ["a has no output 4 on the device; nothing is watched"]);
}

#[test]
fn declared_writes_are_told_with_the_change() {
    let mut lab = Lab::new(&[4096]);
    let mut explicit = Explicit::default();
    let blocks = lab.blocks.clone();
    explicit.add(target("t", BASE, 4096), &blocks, &mut lab);
    let writes = [ByteRange::sized(BASE + 512, 512), ByteRange::sized(BASE + 9000, 5)];
    explicit.before(&call("fill_", &writes[..1]), &blocks, &mut lab);
    lab.write(BASE + 512, 512, 1);
    explicit.after(&call("fill_", &writes), &[], &blocks, &mut lab);
    let last = &lab.taken.last().expect("a look").detail;
    assert_eq!(
        (last.changed.clone(), last.declared.clone()),
        (vec![ByteRange { start: 512, end: 1024 }; 1], vec![ByteRange { start: 512, end: 1024 }; 1])
    );
    assert_eq!(last.writes, writes);
    run(&mut explicit, &mut lab, "next", |_| {});
    assert!(lab.taken.iter().rev().take(2).all(|taken| taken.detail.declared.is_empty()), "only once");
}

#[test]
fn every_block_counts_its_own_dumps() {
    let mut lab = Lab::new(&[512, 512]);
    let mut explicit = Explicit::default();
    let blocks = lab.blocks.clone();
    explicit.add(Target { most_dumps: Some(1), ..target("once", BASE, 512) }, &blocks, &mut lab);
    explicit.add(Target { most_dumps: Some(3), ..target("thrice", BASE + 512, 512) }, &blocks, &mut lab);
    for _ in 0..5 {
        run(&mut explicit, &mut lab, "a", |_| {});
    }
    let looks = |name: &str| {
        lab.taken.iter().filter(|taken| taken.name == name && taken.detail.note == WatchNote::Look).count()
    };
    assert_eq!((looks("once"), looks("thrice")), (1, 3));
    assert!(!explicit.is_watching());
}

#[test]
fn freed_reused_and_unreadable_blocks_end_their_watch() {
    let mut lab = Lab::new(&[512, 512, 512]);
    let mut explicit = Explicit::default();
    let blocks = lab.blocks.clone();
    for (name, address) in [("freed", BASE), ("reused", BASE + 512), ("kept", BASE + 1024)] {
        explicit.add(target(name, address, 512), &blocks, &mut lab);
    }
    explicit.add(target("nowhere", 0x10, 8), &blocks, &mut lab);
    run(&mut explicit, &mut lab, "a", |lab| {
        lab.blocks.end(BASE);
        lab.blocks.end(BASE + 512);
        lab.blocks.begin(DEVICE, BASE + 512, 512, true);
    });
    let left: Vec<&str> = explicit.targets().map(|target| &target.name[..]).collect();
    assert_eq!(left, ["kept"]);
    assert_eq!(
        lab.said,
        [
            "'nowhere' is watched no longer: its contents cannot be read, no such address",
            "'freed' is watched no longer: it was freed",
            "'reused' is watched no longer: it was freed",
        ]
    );
    explicit.resized(BASE + 1024, &mut lab);
    assert!(!explicit.is_watching());
    assert!(!explicit.remove(BASE + 1024, &mut lab));
}

#[test]
fn full_content_writes_files_of_the_documented_names() {
    let mut lab = Lab::new(&[512]);
    lab.directory = Some(tempfile::tempdir().expect("a directory"));
    let mut explicit = Explicit::new(Selection { full_content: true, ..Selection::default() });
    let blocks = lab.blocks.clone();
    explicit.add(target("test", BASE, 24), &blocks, &mut lab);
    run(&mut explicit, &mut lab, "a", |lab| lab.write(BASE + 3, 2, 5));
    let directory = lab.directory.as_ref().expect("set above").path().join("watch_dump");
    let content = |name: &str| std::fs::read(directory.join(name)).expect(name);
    assert_eq!(content("0_7_a_1-test_0_before.bin"), [0; 24]);
    let mut after = [0; 24];
    after[3..5].fill(5);
    assert_eq!(content("0_7_a_1-test_0_after.bin"), after);
    assert_eq!(lab.taken[1].detail.file.as_deref(), Some("0_7_a_1-test_0_before.bin"));
    assert_eq!((lab.taken[1].detail.checksum, lab.taken[1].hash != 0), (None, true));
}

#[test]
fn a_dump_that_cannot_be_written_is_told_once_and_watching_goes_on() {
    let mut lab = Lab::new(&[512]);
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("watch_dump"), b"in the way").expect("a file");
    lab.directory = Some(directory);
    let mut explicit = Explicit::new(Selection { full_content: true, ..Selection::default() });
    let blocks = lab.blocks.clone();
    explicit.add(target("test", BASE, 24), &blocks, &mut lab);
    run(&mut explicit, &mut lab, "a", |_| {});
    run(&mut explicit, &mut lab, "b", |_| {});
    assert_eq!(lab.said.len(), 1, "{:?}", lab.said);
    assert!(lab.said[0].starts_with("contents are no longer dumped, only hashed: 0_7_a_1-test_0_before.bin: "));
    assert_eq!(lab.taken.len(), 5);
}

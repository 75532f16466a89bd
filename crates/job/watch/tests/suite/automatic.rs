//! The hunt through all live blocks.

use std::time::Duration;

use msmemscope_event::{ByteRange, WatchNote};
use msmemscope_watch::{Hunt, HuntBudget, OperatorCall};

use crate::support::{BASE, DEVICE, Lab, Taken, call};

fn hunt(size_bytes: u64) -> Hunt {
    Hunt::new(HuntBudget { size_bytes, time: Duration::from_secs(60) }, None)
}

fn run(hunt: &mut Hunt, lab: &mut Lab, name: &str, writes: &[ByteRange], work: impl FnOnce(&mut Lab)) {
    let blocks = lab.blocks.clone();
    hunt.before(&call(name, writes), &blocks, lab);
    work(lab);
    let blocks = lab.blocks.clone();
    hunt.after(&call(name, writes), &blocks, lab);
}

fn findings(lab: &Lab) -> Vec<&Taken> {
    lab.taken.iter().filter(|taken| taken.detail.note == WatchNote::Look).collect()
}

#[test]
fn the_first_undeclared_change_is_found_and_named() {
    let mut lab = Lab::new(&[1024, 1024, 1024]);
    let mut hunt = hunt(1 << 20);
    let first = [ByteRange::sized(BASE, 1024)];
    for _ in 0..3 {
        run(&mut hunt, &mut lab, "fill", &first, |lab| lab.write(BASE, 1024, 3));
    }
    assert!(findings(&lab).is_empty(), "declared");
    run(&mut hunt, &mut lab, "stomp", &first, |lab| lab.write(BASE, 1500, 4));
    run(&mut hunt, &mut lab, "fill", &first, |lab| lab.write(BASE, 1024, 5));
    let found = findings(&lab);
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].operator[..], found[0].after, found[0].address), ("stomp", true, BASE + 1024));
    assert_eq!(found[0].detail.changed, [ByteRange { start: 0, end: 512 }]);
    assert_eq!((&found[0].detail.since_operator[..], found[0].detail.since_after), ("stomp", false));
    assert_eq!(lab.said.len(), 1);
    let coverage = hunt.coverage();
    assert_eq!((coverage.looks_due, coverage.looks_taken, coverage.operators), (30, 30, 5));
}

#[test]
fn a_change_between_operators_is_not_blamed_on_one() {
    let mut lab = Lab::new(&[1024, 1024]);
    let mut hunt = hunt(1 << 20);
    run(&mut hunt, &mut lab, "a", &[], |_| {});
    lab.write(BASE + 1024, 8, 1);
    run(&mut hunt, &mut lab, "b", &[], |_| {});
    let found = findings(&lab);
    assert_eq!((found.len(), &found[0].operator[..], found[0].after), (1, "b", false));
    assert_eq!((&found[0].detail.since_operator[..], found[0].detail.since_after), ("a", true));
}

#[test]
fn new_blocks_at_old_addresses_are_no_change() {
    let mut lab = Lab::new(&[1024]);
    let mut hunt = hunt(1 << 20);
    run(&mut hunt, &mut lab, "a", &[], |lab| {
        lab.blocks.end(BASE);
        lab.blocks.begin(DEVICE, BASE, 1024, true);
        lab.write(BASE, 1024, 8);
    });
    run(&mut hunt, &mut lab, "b", &[], |_| {});
    assert!(findings(&lab).is_empty());
}

#[test]
fn a_small_budget_takes_turns_and_says_so() {
    let mut lab = Lab::new(&[1024; 10]);
    let mut hunt = hunt(2048);
    for _ in 0..10 {
        run(&mut hunt, &mut lab, "a", &[], |_| {});
    }
    let coverage = hunt.coverage();
    assert_eq!((coverage.looks_due, coverage.looks_taken), (200, 40));
    assert!(coverage.longest_gap > 0);
    assert!(lab.said[0].contains("cannot look at all of 10 live blocks"), "{:?}", lab.said);
    lab.write(BASE + 7 * 1024, 8, 1);
    for _ in 0..5 {
        run(&mut hunt, &mut lab, "b", &[], |_| {});
    }
    let found = findings(&lab);
    assert_eq!((found.len(), found[0].address), (1, BASE + 7 * 1024));
}

#[test]
fn neighbours_of_what_is_written_come_first() {
    let mut lab = Lab::new(&[1024; 50]);
    let mut hunt = hunt(3 * 1024);
    let written = [ByteRange::sized(BASE + 30 * 1024, 1000)];
    run(&mut hunt, &mut lab, "stomp", &written, |lab| lab.write(BASE + 30 * 1024, 1200, 4));
    let found = findings(&lab);
    assert_eq!((found.len(), found[0].address), (1, BASE + 31 * 1024));
    assert_eq!(&found[0].operator, "stomp");
}

#[test]
fn only_blocks_of_the_owner_are_looked_at() {
    let mut lab = Lab::new(&[1024; 4]);
    for index in [0, 1, 3] {
        lab.blocks.end(BASE + index * 1024);
        lab.blocks.begin(DEVICE, BASE + index * 1024, 1024, false);
    }
    let budget = HuntBudget { size_bytes: 1 << 20, time: Duration::from_secs(60) };
    let mut hunt = Hunt::new(budget, Some("weight".to_owned()));
    let written = [ByteRange::sized(BASE, 1024)];
    run(&mut hunt, &mut lab, "stomp", &written, |lab| lab.write(BASE, 2048, 4));
    assert!(findings(&lab).is_empty(), "the neighbour belongs to somebody else");
    run(&mut hunt, &mut lab, "stomp", &written, |lab| lab.write(BASE + 2048, 8, 4));
    lab.blocks.join_hunt(BASE + 3 * 1024);
    run(&mut hunt, &mut lab, "late", &[], |lab| lab.write(BASE + 3 * 1024, 8, 4));
    let found: Vec<u64> = findings(&lab).iter().map(|taken| taken.address).collect();
    assert_eq!(found, [BASE + 2048, BASE + 3 * 1024]);
    let coverage = hunt.coverage();
    assert_eq!((coverage.looks_due, coverage.looks_taken, coverage.operators), (8, 8, 3));
    hunt.record_coverage(&mut lab);
    assert_eq!(lab.taken.last().and_then(|taken| taken.detail.owner.as_deref()), Some("weight"));
}

#[test]
fn views_and_captures_are_left_alone() {
    let mut lab = Lab::new(&[1024]);
    let mut hunt = hunt(1 << 20);
    let blocks = lab.blocks.clone();
    let view = OperatorCall { is_active: false, ..call("view", &[]) };
    hunt.before(&view, &blocks, &mut lab);
    hunt.after(&view, &blocks, &mut lab);
    hunt.blind(true, &[], &blocks);
    hunt.blind(false, &[], &blocks);
    let coverage = hunt.coverage();
    assert_eq!((coverage.looks_due, coverage.operators, coverage.blind_operators), (0, 3, 1));
    hunt.record_coverage(&mut lab);
    assert_eq!(lab.taken[0].detail.coverage, Some(coverage));
}

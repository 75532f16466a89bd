//! Inefficient use by the order of operators.

use std::collections::BTreeMap;

use msmemscope_analysis::inefficient::{FindingKind, InefficiencyKinds, InefficientReport, InefficientSettings};
use msmemscope_analysis::{Answers, Questions};
use msmemscope_report as text;
use proptest::prelude::*;

use crate::support::Dump;

fn ask(dump: &Dump, settings: InefficientSettings) -> Answers {
    dump.ask(&Questions { inefficient: Some(settings), ..Questions::default() })
}

fn report(dump: &Dump) -> InefficientReport {
    ask(dump, InefficientSettings::default()).inefficient.unwrap()
}

fn operator(dump: &mut Dump, name: &str, inside: impl FnOnce(&mut Dump)) {
    dump.begin(name);
    inside(dump);
    dump.end(name);
}

#[test]
fn early_allocation_needs_a_free_in_between() {
    let make = |free_between: bool| {
        let mut dump = Dump::new();
        dump.malloc("PTA", 0x9000, 10);
        operator(&mut dump, "aten.empty", |dump| {
            dump.malloc("PTA", 0x1000, 100).access("WRITE", "aten.empty", 0x1000);
        });
        if free_between {
            operator(&mut dump, "aten.relu", |dump| {
                dump.free("PTA", 0x9000);
            });
        }
        operator(&mut dump, "aten.add", |dump| {
            dump.access("WRITE", "aten.add", 0x1000).free("PTA", 0x1000);
        });
        ask(&dump, InefficientSettings::default())
    };
    let answers = make(true);
    let found = answers.inefficient.unwrap();
    assert_eq!((found.early_allocation.blocks, found.late_deallocation.blocks), (1, 0));
    assert_eq!(found.findings[0].kind, FindingKind::EarlyAllocation);
    assert_eq!(found.findings[0].wasted_byte_operators, 200, "100 bytes over the operators 2 and 3");
    assert_eq!(answers.notes.inefficiency(2), Some("early_allocation"));
    assert_eq!(make(false).inefficient.unwrap().early_allocation.blocks, 0);
}

/// A model that runs as one graph is one operator of many; those inside count, however deep they are.
#[test]
fn operators_inside_of_a_graph_of_atb_count_by_themselves() {
    let mut dump = Dump::new();
    dump.atb("layer0", |dump| {
        dump.atb("module0", |dump| {
            dump.atb("LinearOperation", |dump| {
                dump.malloc("ATB", 0x1000, 100).access_in("ATB", "WRITE", "LinearOperation", 0x1000);
            });
            dump.atb("ElewiseOperation", |dump| {
                dump.access_in("ATB", "UNKNOWN", "ElewiseOperation", 0x1000).malloc("ATB", 0x9000, 50);
            });
        });
        dump.atb("RmsNormOperation", |dump| {
            dump.malloc("ATB", 0x2000, 50).free("ATB", 0x2000);
        });
        dump.atb("LinearOperation", |dump| {
            dump.free("ATB", 0x1000).free("ATB", 0x9000);
        });
    });
    let found = report(&dump);
    assert_eq!((found.operators, found.late_deallocation.blocks, found.late_deallocation.bytes), (6, 1, 100));
    assert_eq!(found.findings[0].kind, FindingKind::LateDeallocation);
    assert_eq!(found.findings[0].use_line, "ElewiseOperation");
    assert_eq!(found.findings[0].wasted_byte_operators, 200, "100 bytes over the operators 5 and 6");
}

/// What happens in a graph behind an operator of it is later than that operator.
#[test]
fn a_graph_goes_on_behind_its_operators() {
    let mut dump = Dump::new();
    dump.atb("layer0", |dump| {
        dump.atb("LinearOperation", |dump| {
            dump.malloc("ATB", 0x1000, 100).access_in("ATB", "WRITE", "LinearOperation", 0x1000);
            dump.access_in("ATB", "UNKNOWN", "LinearOperation", 0x1000);
        });
        dump.malloc("ATB", 0x9000, 50);
        dump.atb("RmsNormOperation", |dump| {
            dump.free("ATB", 0x1000);
        });
    });
    let found = report(&dump);
    assert_eq!((found.operators, found.late_deallocation.blocks), (4, 1));
}

#[test]
fn a_result_used_later_is_flagged_but_no_waste() {
    let mut dump = Dump::new();
    dump.malloc("PTA", 0x9000, 10);
    operator(&mut dump, "aten.mm", |dump| {
        dump.malloc("PTA", 0x1000, 100).access("WRITE", "aten.mm", 0x1000);
    });
    operator(&mut dump, "aten.relu", |dump| {
        dump.free("PTA", 0x9000);
    });
    operator(&mut dump, "aten.mm_backward", |dump| {
        dump.access("READ", "aten.mm_backward", 0x1000).free("PTA", 0x1000);
    });
    let found = report(&dump);
    assert_eq!((found.early_allocation.blocks, found.results_kept.blocks), (1, 1));
    assert!(found.findings.iter().all(|finding| finding.kind != FindingKind::EarlyAllocation));
}

#[test]
fn late_deallocation_needs_an_allocation_in_between() {
    let make = |allocate_between: bool, device: u32| {
        let mut dump = Dump::new();
        operator(&mut dump, "aten.mm", |dump| {
            dump.malloc("PTA", 0x1000, 1 << 20);
        });
        operator(&mut dump, "aten.sum", |dump| {
            dump.access("READ", "aten.sum", 0x1000);
        });
        if allocate_between {
            operator(&mut dump, "aten.add", |dump| {
                dump.malloc_with("PTA", device, 0x20_0000, 1 << 20, "", "");
            });
        }
        dump.free("PTA", 0x1000);
        ask(&dump, InefficientSettings::default())
    };
    let answers = make(true, 0);
    let found = answers.inefficient.unwrap();
    assert_eq!((found.late_deallocation.blocks, found.shareable.blocks), (1, 1));
    assert_eq!(found.findings[0].use_line, "aten.sum");
    assert_eq!(answers.notes.inefficiency(1), Some("late_deallocation"));
    let peak = &found.peaks[0];
    assert_eq!((peak.peak_bytes, peak.peak_if_fixed_bytes), (2 << 20, 1 << 20));
    assert!((found.peak_share() - 0.5).abs() < 1e-9);
    let text = text::inefficient(&found).replace('\n', " ");
    assert!(text.contains("would fall from 2.0 MiB to 1.0 MiB (50.0 %)."), "{text}");
    assert_eq!(found.findings[0].could_share, 1);
    assert!(text.contains("1 of 1 such block could then share memory"), "{text}");
    assert_eq!(make(false, 0).inefficient.unwrap().late_deallocation.blocks, 0);
    let elsewhere = make(true, 1).inefficient.unwrap();
    assert_eq!(elsewhere.shareable.blocks, 0, "memory of another device cannot be shared");
}

#[test]
fn idleness_counts_operators_between_accesses() {
    let mut dump = Dump::new();
    dump.malloc("PTA", 0x1000, 64);
    operator(&mut dump, "aten.a", |dump| {
        dump.access("READ", "aten.a", 0x1000);
    });
    for _ in 0..5 {
        operator(&mut dump, "aten.other", |_| {});
    }
    operator(&mut dump, "aten.b", |dump| {
        dump.access("READ", "aten.b", 0x1000).free("PTA", 0x1000);
    });
    let with_threshold = |idle_threshold| {
        let settings = InefficientSettings { idle_threshold, ..InefficientSettings::default() };
        ask(&dump, settings).inefficient.unwrap().temporary_idleness.blocks
    };
    assert_eq!((with_threshold(5), with_threshold(6)), (1, 0));
}

#[test]
fn size_and_kinds_filter() {
    let mut dump = Dump::new();
    for (address, size) in [(0x1000u64, 10), (0x2000, 1000)] {
        operator(&mut dump, "aten.mm", |dump| {
            dump.malloc("PTA", address, size);
        });
        operator(&mut dump, "aten.sum", |dump| {
            dump.access("READ", "aten.sum", address);
        });
        operator(&mut dump, "aten.add", |dump| {
            dump.malloc("PTA", address + 0x800, 1);
        });
        dump.free("PTA", address);
    }
    let count = |settings| ask(&dump, settings).inefficient.unwrap().late_deallocation.blocks;
    assert_eq!(count(InefficientSettings::default()), 2);
    assert_eq!(count(InefficientSettings { minimum_size_bytes: 100, ..InefficientSettings::default() }), 1);
    assert_eq!(count(InefficientSettings { kinds: InefficiencyKinds::EARLY, ..InefficientSettings::default() }), 0);
}

#[test]
fn memory_nobody_touches_is_named_once_accesses_are_recorded() {
    let mut dump = Dump::new();
    operator(&mut dump, "aten.empty", |dump| {
        dump.malloc("PTA", 0x1000, 4096);
    });
    for _ in 0..3 {
        operator(&mut dump, "aten.mm", |dump| {
            dump.malloc("PTA", 0x5000, 8).free("PTA", 0x5000);
        });
    }
    assert_eq!(report(&dump).never_used.blocks, 0);
    assert!(text::inefficient(&report(&dump)).starts_with("No accesses were recorded"));
    dump.malloc("PTA", 0x7000, 8).access("READ", "aten.x", 0x7000).free("PTA", 0x1000);
    let found = report(&dump);
    assert_eq!(
        (found.never_used.blocks, found.never_used.bytes),
        (1, 4096),
        "scratch memory of an operator does not count"
    );
}

#[derive(Clone, Debug)]
enum Action {
    Allocate(u64),
    Free(prop::sample::Index),
    Access(prop::sample::Index),
    NextOperator,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (1u64..5).prop_map(|size| Action::Allocate(size * 100)),
        2 => any::<prop::sample::Index>().prop_map(Action::Free),
        4 => any::<prop::sample::Index>().prop_map(Action::Access),
        4 => Just(Action::NextOperator),
    ]
}

#[derive(Clone, Debug, Default)]
struct History {
    born: u64,
    accesses: Vec<u64>,
    freed: Option<u64>,
}

const IDLE_THRESHOLD: u64 = 4;

/// The definitions, applied to the whole history at once.
fn model(blocks: &[History]) -> Vec<u8> {
    let frees: Vec<u64> = blocks.iter().filter_map(|block| block.freed).collect();
    let births: Vec<u64> = blocks.iter().map(|block| block.born).collect();
    let between = |times: &[u64], after: u64, before: u64| times.iter().any(|&time| after < time && time < before);
    blocks
        .iter()
        .map(|block| {
            let first = block.accesses.iter().copied().find(|&access| access != block.born);
            let early = first.is_some_and(|first| between(&frees, block.born, first));
            let late = match (block.accesses.last(), block.freed) {
                (Some(&last), Some(freed)) => last != freed && between(&births, last, freed),
                _ => false,
            };
            let idle = block.accesses.windows(2).any(|pair| pair[1] - pair[0] > IDLE_THRESHOLD);
            u8::from(early) | u8::from(late) << 1 | u8::from(idle) << 2
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flags_agree_with_the_definitions(actions in prop::collection::vec(action(), 1..150)) {
        let mut dump = Dump::new();
        let mut blocks: Vec<History> = Vec::new();
        let mut live: BTreeMap<usize, u64> = BTreeMap::new();
        let mut number = 1u64;
        let mut address = 0x1000u64;
        dump.begin("aten.op");
        for action in &actions {
            match action {
                Action::Allocate(size) => {
                    address += 0x1000;
                    dump.malloc("PTA", address, *size);
                    live.insert(blocks.len(), address);
                    blocks.push(History { born: number, ..History::default() });
                }
                Action::Free(index) if !live.is_empty() => {
                    let block = *live.keys().nth(index.index(live.len())).unwrap();
                    dump.free("PTA", live.remove(&block).unwrap());
                    blocks[block].freed = Some(number);
                }
                Action::Access(index) if !live.is_empty() => {
                    let block = *live.keys().nth(index.index(live.len())).unwrap();
                    dump.access("UNKNOWN", "aten.op", live[&block]);
                    blocks[block].accesses.push(number);
                }
                Action::NextOperator => {
                    dump.end("aten.op").begin("aten.op");
                    number += 1;
                }
                _ => {}
            }
        }
        let settings = InefficientSettings { idle_threshold: IDLE_THRESHOLD, ..InefficientSettings::default() };
        let answers = ask(&dump, settings);
        for (index, expected) in model(&blocks).into_iter().enumerate() {
            let names = [(1, "early_allocation"), (2, "late_deallocation"), (4, "temporary_idleness")];
            let expected: Vec<&str> =
                names.iter().filter(|(bit, _)| expected & bit != 0).map(|(_, name)| *name).collect();
            let found = answers.notes.inefficiency(index as u64 + 1).unwrap_or_default();
            prop_assert_eq!(found, expected.join(","), "block {} of {:?}", index, blocks);
        }
    }
}

//! Leaks over steps, between marks, after aclFinalize, and fluctuation.

use std::collections::BTreeMap;

use msmemscope_analysis::leaks::{DriverVerdict, FewSteps, LeakReport};
use msmemscope_analysis::marks::{MarkOutcome, MarkSettings};
use msmemscope_analysis::{Questions, text};
use msmemscope_event::Device;
use proptest::prelude::*;

use crate::support::Dump;

fn leaks_of(dump: &Dump) -> LeakReport {
    dump.ask(&Questions { leaks: true, ..Questions::default() }).leaks.unwrap()
}

/// Six steps, each of which keeps one block of a call site and frees another.
fn leaking() -> Dump {
    let mut dump = Dump::new();
    dump.malloc_at(0x1000, 4096, "/me/train.py(3): setup\n");
    for step in 1..=6u64 {
        dump.step_begin();
        dump.kernel("add");
        dump.malloc_at(
            0x10_0000 * step,
            1 << 20,
            "/lib/python3/site-packages/torch/f.py(9): f\n/me/train.py(12): step\n",
        );
        dump.malloc_at(0x8000_0000, 512, "/me/train.py(13): step\n").free("PTA", 0x8000_0000);
        dump.step_end();
    }
    dump
}

#[test]
fn a_site_that_keeps_a_block_every_step_is_a_leak() {
    let report = leaks_of(&leaking());
    assert_eq!(report.leaks.len(), 1);
    let group = &report.leaks[0];
    // Step 1 does not count, and step 6 has no later step end.
    assert_eq!((group.count, group.steps, group.step_range), (4, 4, (2, 5)));
    assert_eq!((group.bytes, group.bytes_per_step), (4 << 20, 1 << 20));
    assert_eq!(group.site.line, "/me/train.py:12 step");
    assert_eq!(group.blocks[0].kernel_index, 2);
    assert_eq!((report.steps, report.retained_once.len(), report.driver), (6, 0, DriverVerdict::ByStep));
    assert_eq!(report.growth[0].bytes_per_step(), Some(1_048_576.0));
}

#[test]
fn the_report_says_it_in_words_and_in_the_known_lines() {
    let text = text::leaks(&leaks_of(&leaking()));
    let expected = "\
====== ERROR: Detected memory leaks on device 0 ======
Direct Pytorch Caching memory pool leak of 1.000000 Mb(s) at 0x200000 in kernel_2 at step 2.
Direct Pytorch Caching memory pool leak of 1.000000 Mb(s) at 0x300000 in kernel_3 at step 3.
Direct Pytorch Caching memory pool leak of 1.000000 Mb(s) at 0x400000 in kernel_4 at step 4.
Direct Pytorch Caching memory pool leak of 1.000000 Mb(s) at 0x500000 in kernel_5 at step 5.
====== SUMMARY: 4 Mb(s) leaked in 4 allocation(s) ======

Call sites that keep more memory with every step:
  per step     total  blocks  steps  device  allocated at
  1.00 MiB  4.00 MiB       4    2-5   0 PTA  /me/train.py:12 step
  The way to the first one, innermost first:
    /me/train.py:12 step
    (without 1 frame(s), mostly of frameworks; --json has all)

PyTorch caching on device 0 in use at step ends (+1.00 MiB per step on average):
  step    in use     change
     1  1.00 MiB
     2  2.00 MiB  +1.00 MiB
     3  3.00 MiB  +1.00 MiB
     4  4.00 MiB  +1.00 MiB
     5  5.00 MiB  +1.00 MiB
     6  6.00 MiB  +1.00 MiB

What to do:
  Look at /me/train.py:12 step
  Look for what keeps its result: a list or attribute that only grows, a
  closure, or a loss kept with its graph (append loss.item() or loss.detach()
  instead).
";
    assert_eq!(text, expected);
}

#[test]
fn what_is_kept_once_is_no_leak() {
    let mut dump = Dump::new();
    for step in 1..=8u64 {
        dump.step_begin();
        if step == 3 {
            dump.malloc_at(0x5000, 1 << 20, "/me/cache.py(5): fill\n");
        }
        dump.malloc_at(0x9000, 64, "/me/train.py(1): step\n").free("PTA", 0x9000);
        dump.step_end();
    }
    let report = leaks_of(&dump);
    assert!(report.leaks.is_empty());
    assert_eq!((report.retained_once.len(), report.retained_once[0].step_range), (1, (3, 3)));
    let text = text::leaks(&report);
    assert!(text.starts_with("No leaks found in 8 steps.\n"), "{text}");
    assert!(text.contains("Kept once and not freed"), "{text}");
}

#[test]
fn blocks_handed_from_step_to_step_are_no_leak() {
    let mut dump = Dump::new();
    for step in 1..=8u64 {
        dump.step_begin();
        if step > 1 {
            dump.free("PTA", 0x1000 * (step - 1));
        }
        dump.malloc_at(0x1000 * step, 1 << 20, "/me/train.py(7): step\n");
        dump.step_end();
    }
    let report = leaks_of(&dump);
    assert_eq!((report.leaks.len(), report.retained_once.len()), (0, 0));
}

#[test]
fn what_is_freed_only_on_the_way_out_is_a_leak() {
    let mut dump = Dump::new();
    for step in 1..=8u64 {
        dump.step_begin().malloc_at(0x1000 * step, 1 << 20, "/me/train.py(7): step\n").step_end();
    }
    for step in 1..=8u64 {
        dump.free("PTA", 0x1000 * step);
    }
    let report = leaks_of(&dump);
    assert_eq!((report.leaks[0].count, report.leaks[0].freed_at_the_end), (6, 6));
    assert!(text::leaks(&report).contains("freed only after the last step"), "{}", text::leaks(&report));
}

#[test]
fn frees_inside_an_unfinished_step_are_frees() {
    let mut dump = Dump::new();
    for step in 1..=8u64 {
        dump.step_begin().malloc_at(0x1000 * step, 1 << 20, "/me/train.py(7): step\n").step_end();
    }
    dump.step_begin();
    for step in 1..=8u64 {
        dump.free("PTA", 0x1000 * step);
    }
    assert_eq!(leaks_of(&dump).leaks, []);
}

#[test]
fn a_buffer_of_the_latest_steps_does_not_grow() {
    let mut dump = Dump::new();
    for step in 1..=20u64 {
        dump.step_begin();
        if step > 5 {
            dump.free("PTA", 0x1000 * (step - 5));
        }
        dump.malloc_at(0x1000 * step, 1 << 20, "/me/replay.py(7): remember\n").step_end();
    }
    let report = leaks_of(&dump);
    assert_eq!((report.leaks.len(), report.retained_once[0].count), (0, 4));
}

#[test]
fn nested_and_other_ranges_are_no_steps() {
    let mut dump = Dump::new();
    for step in 1..=5u64 {
        dump.step_begin();
        // A range of the same name inside an open step, and its end.
        dump.step_begin();
        dump.malloc_at(0x1000 * step, 100, "/me/a.py(1): f\n");
        dump.step_end();
        dump.step_end();
    }
    let report = leaks_of(&dump);
    assert_eq!(report.steps, 5);
    assert_eq!(report.leaks[0].count, 3);
}

#[test]
fn without_stacks_operator_size_and_owner_make_the_group() {
    let mut dump = Dump::new();
    for step in 1..=6u64 {
        dump.step_begin().begin("aten.add");
        dump.malloc("PTA", 0x10_0000 * step, 2048);
        dump.end("aten.add").begin("aten.mul");
        dump.malloc("PTA", 0x10_0000 * step + 0x8000, 2048);
        dump.end("aten.mul");
        let owner = if step % 2 == 0 { ",owner:PTA@even" } else { ",owner:PTA@odd" };
        dump.malloc_with("PTA", 0, 0x9000_0000 + 0x1000 * step, 2048, owner, "");
        dump.step_end();
    }
    let report = leaks_of(&dump);
    let operators: Vec<&str> = report.leaks.iter().map(|group| group.site.operator.as_str()).collect();
    assert_eq!(operators.len(), 2, "{operators:?}");
    assert!(operators.contains(&"aten.add") && operators.contains(&"aten.mul"));
    assert_eq!(report.retained_once.len(), 2, "two owners with two steps each");
}

#[test]
fn driver_memory_behind_a_pool_is_not_reported_twice() {
    let mut dump = Dump::new();
    for step in 1..=6u64 {
        dump.step_begin();
        dump.malloc("HAL", 0x1000_0000 * step, 2 << 20);
        dump.malloc_at(0x1000_0000 * step + 512, 1 << 20, "/me/a.py(1): f\n");
        dump.malloc("HAL", 0x9_0000_0000 + 0x1000_0000 * step, 4096);
        dump.step_end();
    }
    let report = leaks_of(&dump);
    let found: Vec<(&str, u64)> = report.leaks.iter().map(|group| (group.pool.event_type(), group.bytes)).collect();
    assert_eq!(found, [("PTA", 4 << 20), ("HAL", 4 * 4096)]);
}

#[test]
fn driver_memory_without_steps_is_judged_after_finalize() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x1000, 1 << 20).malloc("HAL", 0x80_0000, 4096).free("HAL", 0x80_0000);
    assert_eq!(leaks_of(&dump).driver, DriverVerdict::NotKnown);
    let text = text::leaks(&leaks_of(&dump));
    assert!(text.starts_with("No steps were marked and aclFinalize was not seen"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    dump.system("ACL_FINI");
    let report = leaks_of(&dump);
    assert_eq!(report.driver, DriverVerdict::AfterFinalize);
    assert_eq!((report.after_finalize.len(), report.leaked_bytes()), (1, 1 << 20));
    assert!(text::leaks(&report).contains("Direct Hal memory leak of 1.000000 Mb(s) at 0x1000 in kernel_0 at step 0."));
}

#[test]
fn a_script_that_ends_with_tensors_leaks_nothing() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x20_0000, 2 << 20).malloc("PTA", 0x20_0000, 4096).system("ACL_FINI");
    let report = leaks_of(&dump);
    assert_eq!((report.driver, report.after_finalize.len()), (DriverVerdict::AfterFinalize, 0));
}

#[test]
fn few_steps_say_what_they_can() {
    let mut dump = Dump::new();
    for step in 1..=3u64 {
        dump.step_begin();
        dump.malloc_at(0x1000 * step, 100, "/me/a.py(1): f\n");
        dump.step_end();
    }
    let report = leaks_of(&dump);
    assert_eq!((report.leaks.len(), report.retained_once.len()), (0, 1));
    assert!(report.too_few_steps());
    assert!(text::leaks(&report).starts_with("No leaks found, but 3 step(s) are too few to be sure"));
}

#[test]
fn what_comes_behind_the_last_step_of_the_api_is_no_step() {
    let after = |steps: u64| {
        let mut dump = Dump::new();
        for step in 1..=steps {
            dump.malloc_at(0x1000, 100, "/me/a.py(1): f\n").free("PTA", 0x1000).api_step(step);
        }
        dump.malloc_at(0x1000, 100, "/me/a.py(9): g\n");
        let answers = dump.ask(&Questions { leaks: true, ..Questions::default() });
        let report = answers.leaks.unwrap();
        assert_eq!((report.steps, answers.summary.steps), (steps, steps));
        text::leaks(&report)
    };
    assert!(after(4).starts_with("No leaks found, but 4 step(s) are too few to be sure"), "{}", after(4));
    assert!(after(5).starts_with("No leaks found in 5 steps."), "{}", after(5));
}

#[test]
fn a_step_begun_without_device_is_one_of_every_device() {
    let mut dump = Dump::new();
    for step in 1..=8u64 {
        if step == 1 {
            dump.step_begin_without_device()
        } else {
            dump.step_begin()
        };
        dump.malloc_with("PTA", 0, 0x1000 * step, 100, "", "/me/a.py(1): f\n");
        dump.malloc_with("PTA", 1, 0x1000_0000 * step, 100, "", "/me/a.py(2): g\n");
        if step == 1 {
            dump.step_end_without_device()
        } else {
            dump.step_end()
        };
    }
    let answers = dump.ask(&Questions { leaks: true, ..Questions::default() });
    let report = answers.leaks.unwrap();
    assert_eq!((report.steps, answers.summary.steps), (8, 8));
    assert!(!report.too_few_steps());
    // The first step never counts and the last one has no later end, on the device of the ranges as on the other.
    let ranges: Vec<_> = report.leaks.iter().map(|leak| (leak.device, leak.step_range)).collect();
    assert_eq!(ranges, [(Device::Npu(0), (2, 7)), (Device::Npu(1), (2, 7))]);
}

#[test]
fn a_device_with_few_steps_of_its_own_is_named() {
    let mut dump = Dump::new();
    for step in 1..=6u64 {
        dump.step_begin().malloc("PTA", 0x1000 * step, 100).free("PTA", 0x1000 * step);
        if step < 6 {
            dump.step_end();
        }
    }
    let report = leaks_of(&dump);
    assert!(text::leaks(&report).starts_with("No leaks found in 6 steps."), "five of them have ended");
    let mut dump = Dump::new();
    for step in 1..=5u64 {
        dump.step_begin().malloc("PTA", 0x1000 * step, 100).free("PTA", 0x1000 * step);
        if step < 5 {
            dump.step_end();
        }
    }
    let report = leaks_of(&dump);
    assert_eq!(report.few_steps, [FewSteps { device: Device::Npu(0), ended: 4 }]);
    let said = text::leaks(&report).replace('\n', " ");
    let expected = "No leaks found in 5 step(s), but those that device 0 has ended, 4, are too few to be sure: ";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn steps_of_a_second_source_do_not_count() {
    let mut ranges_first = Dump::new();
    let mut api_first = Dump::new();
    api_first.api_step(1);
    for step in 1..=3u64 {
        ranges_first.step_begin().malloc("PTA", 0x1000 * step, 100).api_step(step).step_end();
        api_first.step_begin().malloc("PTA", 0x1000 * step, 100).step_end().api_step(step + 1);
    }
    for (dump, steps) in [(ranges_first, 3), (api_first, 4)] {
        let answers = dump.ask(&Questions { leaks: true, ..Questions::default() });
        let report = answers.leaks.unwrap();
        assert_eq!((report.steps, answers.summary.steps), (steps, steps));
        assert_eq!(report.growth[0].step_ends.len() as u64, 3, "one for each end with memory");
        assert_eq!(report.few_steps, [FewSteps { device: Device::Npu(0), ended: steps }]);
    }
}

#[test]
fn the_average_is_that_of_the_changes_shown() {
    let mut dump = Dump::new();
    // In use at step ends: 4, 2, 4, 2, 4 MiB.
    for step in 1..=5u64 {
        dump.step_begin();
        if step % 2 == 1 {
            dump.malloc("PTA", 0x1000, 4 << 20);
        } else {
            dump.free("PTA", 0x1000).malloc("PTA", 0x1000, 2 << 20);
        }
        dump.step_end();
        if step % 2 == 0 {
            dump.free("PTA", 0x1000);
        }
    }
    let report = leaks_of(&dump);
    assert_eq!(report.growth[0].bytes_per_step(), Some(0.0));
    assert!(!text::leaks(&report).contains("on average"), "it does not grow");
}

#[test]
fn fluctuation_from_the_second_step_on() {
    let mut dump = Dump::new();
    dump.malloc("PTA", 0x10, 50 << 20);
    for (step, size) in [(1u64, 90u64), (2, 50), (3, 150), (4, 0)] {
        dump.step_begin();
        if size > 0 {
            dump.malloc("PTA", 0x1000 * step, size << 20).free("PTA", 0x1000 * step);
        }
        dump.step_end();
    }
    let pools = dump.ask(&Questions { fluctuation: true, ..Questions::default() }).fluctuation.unwrap();
    assert_eq!(pools[0].steps, 3);
    let (smallest, largest) = (pools[0].smallest.unwrap(), pools[0].largest.unwrap());
    assert_eq!((smallest.step, smallest.minimum_bytes, smallest.maximum_bytes), (3, 50 << 20, 200 << 20));
    assert_eq!((largest.step, largest.ratio), (4, 1.0));
    let expected = "======= Pytorch Caching memory pool Gap Analysis of Device 0 =======\n\
                    \tMinAlloc/MaxAlloc(%)     MinAllocMem(MB)          StepId\n\
                    MinGap\t25.0000                  50.0000                  3\n\
                    MaxGap\t100.0000                 50.0000                  4\n";
    assert_eq!(text::fluctuation(&pools), expected);
}

#[test]
fn leaks_between_three_marks() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x100, 1 << 20).mark("test");
    dump.malloc("HAL", 0x200_0000, 1 << 20).malloc("PTA", 0x300_0000, 1 << 19).malloc("HAL", 0x400_0000, 64);
    dump.mark("test");
    dump.malloc("HAL", 0x500_0000, 64).free("HAL", 0x400_0000);
    dump.mark("other").mark("test").free("PTA", 0x300_0000).mark("test");
    let ask = |start_index| {
        let marks = Some(MarkSettings { message: "test".into(), start_index });
        dump.ask(&Questions { marks, ..Questions::default() }).marks.unwrap()
    };
    let report = ask(0);
    let expected = "INFO: Starting to analyze data for device 0...\n\n\
                    Leak Analysis Results for the Custom Range:\n\
                    ====== ERROR: Detected memory leaks on device 0 ======\n\
                    Direct Hal memory leak of 1 Mb(s) at 0x0000000002000000 in Index 3.\n\
                    Direct Pytorch Caching memory pool leak of 0.5 Mb(s) at 0x0000000003000000 in Index 4.\n";
    assert_eq!(text::marks(&report), expected);
    assert_eq!(ask(1).devices[0].leaks.len(), 1, "allocated after the second mark");
    assert_eq!(ask(2).devices[0].outcome, MarkOutcome::IndexOutOfRange);
    let text = text::marks(&ask(2));
    assert!(text.contains("ERROR: device 0 has 4 marks named \"test\"; three are needed from index 2 on."), "{text}");
    assert!(!text.contains("Results"), "{text}");
    let missing = Some(MarkSettings { message: "absent".into(), start_index: 0 });
    let report = dump.ask(&Questions { marks: missing, ..Questions::default() }).marks.unwrap();
    assert_eq!(report.devices[0].outcome, MarkOutcome::TooFewMarks);
}

#[test]
fn a_mark_before_the_first_use_of_the_device_counts() {
    let mut dump = Dump::new();
    dump.mark_without_device("test").malloc("HAL", 0x100_0000, 1 << 20).mark("test").mark("test");
    let marks = Some(MarkSettings { message: "test".into(), start_index: 0 });
    let report = dump.ask(&Questions { marks, ..Questions::default() }).marks.unwrap();
    assert_eq!((report.devices[0].marks, report.devices[0].outcome), (3, MarkOutcome::Complete));
    assert_eq!(report.devices[0].leaks.len(), 1);
}

#[derive(Clone, Debug)]
enum Action {
    Allocate { site: u64, size: u64 },
    Free(prop::sample::Index),
    NextStep,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0u64..4, 1u64..100).prop_map(|(site, size)| Action::Allocate { site, size }),
        3 => any::<prop::sample::Index>().prop_map(Action::Free),
        2 => Just(Action::NextStep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The definition, applied to the whole history at once.
    #[test]
    fn leaks_agree_with_their_definition(
        actions in prop::collection::vec(action(), 1..120),
        last_step_ends in any::<bool>(),
        freed_on_exit in 0usize..20,
    ) {
        let mut dump = Dump::new();
        let (mut step, mut address) = (1u64, 0x1000u64);
        let mut live: Vec<(u64, u64, u64, u64)> = Vec::new();
        // Frees as (site, step of birth, step of the free).
        let mut freed: Vec<(u64, u64, u64)> = Vec::new();
        dump.step_begin();
        for action in &actions {
            match action {
                Action::Allocate { site, size } => {
                    address += 0x1000;
                    dump.malloc_at(address, *size, &format!("/me/a.py({site}): f\n"));
                    live.push((address, *size, *site, step));
                }
                Action::Free(index) if !live.is_empty() => {
                    let (address, _, site, born) = live.remove(index.index(live.len()));
                    dump.free("PTA", address);
                    freed.push((site, born, step));
                }
                Action::Free(_) => {}
                Action::NextStep => {
                    dump.step_end().step_begin();
                    step += 1;
                }
            }
        }
        let ended = if last_step_ends { step } else { step - 1 };
        if last_step_ends {
            dump.step_end();
            for (address, ..) in live.iter().take(freed_on_exit) {
                dump.free("PTA", *address);
            }
        }
        let mut given_back: BTreeMap<u64, u64> = BTreeMap::new();
        for (site, ..) in freed.iter().filter(|(_, born, at)| *born >= 2 && born + 1 < *at && *at <= ended) {
            *given_back.entry(*site).or_default() += 1;
        }
        let mut sites: BTreeMap<u64, (std::collections::BTreeSet<u64>, u64, u64)> = BTreeMap::new();
        for &(_, size, site, born) in live.iter().filter(|(_, _, _, born)| *born >= 2 && *born < ended) {
            let (steps, bytes, count) = sites.entry(site).or_default();
            steps.insert(born);
            *bytes += size;
            *count += 1;
        }
        let expected = |leak: bool| -> Vec<u64> {
            let is_leak = |site: &u64, steps: usize, count: u64| {
                steps >= 3 && given_back.get(site).copied().unwrap_or(0) < count
            };
            let mut bytes: Vec<u64> = sites
                .iter()
                .filter(|(site, (steps, _, count))| is_leak(site, steps.len(), *count) == leak)
                .map(|(_, (_, bytes, _))| *bytes)
                .collect();
            bytes.sort_unstable();
            bytes
        };
        let report = leaks_of(&dump);
        let found = |groups: &[msmemscope_analysis::leaks::LeakGroup]| {
            let mut bytes: Vec<u64> = groups.iter().map(|group| group.bytes).collect();
            bytes.sort_unstable();
            bytes
        };
        prop_assert_eq!(found(&report.leaks), expected(true));
        prop_assert_eq!(found(&report.retained_once), expected(false));
    }
}

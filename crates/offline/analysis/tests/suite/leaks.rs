//! Leaks over steps, between marks, after aclFinalize, and fluctuation.

use std::collections::BTreeMap;

use msmemscope_analysis::Questions;
use msmemscope_analysis::leaks::{DriverVerdict, FewSteps, LeakReport};
use msmemscope_analysis::marks::{MarkOutcome, MarkSettings};
use msmemscope_analysis::unseen::UnseenPool;
use msmemscope_event::{BlockProperties, Device, Fact, Framework, Pool, ProcessInfoKey, RecordingState, StringId};
use msmemscope_report::{self as text, Style};
use proptest::prelude::*;

use crate::support::{Dump, Traced};

fn leaks_of(dump: &Dump) -> LeakReport {
    dump.ask(&Questions { leaks: true, ..Questions::default() }).leaks.unwrap()
}

fn full(report: &LeakReport) -> String {
    said(report, &[])
}

/// The sentence that comes first, and the report.
fn said(report: &LeakReport, unseen: &[UnseenPool]) -> String {
    let mut first = String::new();
    if let Some(sentence) = text::headline::leaks(report, unseen, false) {
        text::layout::push_wrapped(&mut first, &sentence, "");
        first.push('\n');
    }
    first + &text::leaks(report, unseen, Style::Full)
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

/// Kernels are counted for the whole process.
#[test]
fn the_kernel_of_a_leak_is_counted_over_all_cards() {
    let mut dump = Dump::new();
    for step in 1..=6u64 {
        dump.step_begin();
        dump.kernel_on("add", 0).kernel_on("mul", 1).kernel_on("mul", 1);
        dump.malloc_at(0x10_0000 * step, 1 << 20, "/me/train.py(12): step\n");
        dump.step_end();
    }
    let indices: Vec<u64> = leaks_of(&dump).leaks[0].blocks.iter().map(|block| block.kernel_index).collect();
    assert_eq!(indices, [6, 9, 12, 15]);
}

#[test]
fn the_report_says_it_in_words_and_in_the_known_lines() {
    let text = full(&leaks_of(&leaking()));
    let expected = "\
Leak: 1.0 MiB more with every step, 4.0 MiB by now, held by 4 blocks of steps
2-5 allocated at /me/train.py:12 step.

Call sites that hold more memory with every step:
  per step    total  blocks  steps     device  allocated at
   1.0 MiB  4.0 MiB       4    2-5  0 PyTorch  /me/train.py:12 step

What to do:
  Look for what keeps its result: a list, dictionary or attribute that only
  grows, such as a cache of keys and values that is never dropped, or a closure.
  Limit it, or delete what is no longer needed.

PyTorch caching on device 0 at step ends (+1.0 MiB per step since step 3):
  step   in use    change
     1  1.0 MiB
     2  2.0 MiB  +1.0 MiB
     3  3.0 MiB  +1.0 MiB
     4  4.0 MiB  +1.0 MiB
     5  5.0 MiB  +1.0 MiB
     6  6.0 MiB  +1.0 MiB

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
    let text = full(&report);
    assert!(text.starts_with("No leaks found in 8 steps.\n"), "{text}");
    assert!(text.contains("Kept and not freed"), "{text}");
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
    assert!(full(&report).contains("freed only after the last step"), "{}", full(&report));
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

/// A site that allocates in every step and gives back what is older than this many steps, when it gets the next.
fn bounded_history(steps: u64, length: u64) -> Dump {
    let mut dump = Dump::new();
    for step in 1..=steps {
        dump.step_begin().malloc_at(0x1000 * step, 1 << 20, "/me/history.py(7): remember\n");
        if step > length {
            dump.free("PTA", 0x1000 * (step - length));
        }
        dump.step_end();
    }
    dump
}

#[test]
fn a_bounded_history_is_no_leak_however_short_the_run() {
    for length in [2, 3, 5] {
        for steps in length + 1..length + 6 {
            let report = leaks_of(&bounded_history(steps, length));
            assert_eq!(report.suspects().count(), 0, "{length} blocks, {steps} steps: {report:?}");
        }
    }
    // As long as nothing has been given back nobody can know.
    assert_eq!(leaks_of(&bounded_history(5, 5)).leaks.len(), 1);
}

#[test]
fn a_cache_that_replaces_its_entries_is_no_leak() {
    let mut dump = Dump::new();
    // Keys come back in no order; an entry lives until its key does.
    for (step, key) in [0u64, 1, 0, 2, 1, 0, 3, 2, 0, 1].into_iter().enumerate() {
        let address = |step: usize| 0x10_0000 * (step as u64 + 1);
        dump.step_begin();
        if let Some(before) = [0u64, 1, 0, 2, 1, 0, 3, 2, 0, 1][..step].iter().rposition(|&other| other == key) {
            dump.free("PTA", address(before));
        }
        dump.malloc_at(address(step), 1 << 20, "/me/cache.py(7): look_up\n").step_end();
    }
    assert_eq!(leaks_of(&dump).suspects().count(), 0);
}

#[test]
fn a_site_that_keeps_more_than_it_gives_back_is_a_leak() {
    let mut dump = Dump::new();
    for step in 1..=10u64 {
        dump.step_begin();
        dump.malloc_at(0x10_0000 * step, 1 << 20, "/me/train.py(7): step\n");
        dump.malloc_at(0x10_0000 * step + 0x8000, 64, "/me/train.py(7): step\n");
        dump.malloc_at(0x10_0000 * step + 0x9000, 64, "/me/train.py(7): step\n");
        if step > 2 {
            // Two steps later one of the three is given back.
            dump.free("PTA", 0x10_0000 * (step - 2) + 0x8000);
        }
        dump.step_end();
    }
    assert_eq!(leaks_of(&dump).leaks.len(), 1);
}

/// Steps that free what they allocate, but for those that keep a block of one line.
fn keeping_in(steps: u64, keeping: &[u64]) -> Dump {
    let mut dump = Dump::new();
    for step in 1..=steps {
        dump.step_begin().malloc_at(0x1000 * step, 4096, "/me/train.py(5): step\n");
        if !keeping.contains(&step) {
            dump.free("PTA", 0x1000 * step);
        }
        dump.step_end();
    }
    dump
}

#[test]
fn a_block_kept_in_two_steps_is_reported_with_a_doubt() {
    let report = leaks_of(&keeping_in(10, &[2, 6]));
    assert_eq!((report.leaks.len(), report.possible_leaks.len(), report.leaked_bytes()), (0, 1, 0));
    assert_eq!(report.suspected_bytes(), 8192);
    let classic = text::leaks(&report, &[], Style::Classic);
    let expected = "\
====== ERROR: Detected memory leaks on device 0 ======
Direct Pytorch memory pool leak of 0.003906 Mb(s) at 0x2000 in kernel_0 at step 2.
Direct Pytorch memory pool leak of 0.003906 Mb(s) at 0x6000 in kernel_0 at step 6.
====== SUMMARY: 0.0078125 Mb(s) leaked in 2 allocation(s) ======
These allocations may be kept on purpose: call sites that kept memory in two
steps only. A leak is certain from 3 steps on.

";
    assert_eq!(classic, expected);
    let full = full(&report);
    assert!(full.contains("Perhaps a leak: 8.0 KiB, held by 2 blocks"), "{full}");
    assert!(
        full.contains("2       2-6  0 PyTorch  /me/train.py:5 step") || full.contains("/me/train.py:5 step"),
        "{full}"
    );
    assert!(!full.contains("No leaks found"), "{full}");

    // One block per step, in a run so short that only two of them have a later step behind them.
    let report = leaks_of(&keeping_in(4, &[1, 2, 3, 4]));
    assert_eq!((report.leaks.len(), report.possible_leaks[0].step_range), (0, (2, 3)));
    assert_eq!(leaks_of(&keeping_in(10, &[2])).suspects().count(), 0, "kept once is no leak");
}

#[test]
fn the_classic_report_has_the_known_lines_and_names_their_kernels() {
    let report = leaks_of(&leaking());
    let classic = text::leaks(&report, &[], Style::Classic);
    assert!(classic.lines().next() == Some("====== ERROR: Detected memory leaks on device 0 ======"), "{classic}");
    assert!(classic.contains("Direct Pytorch memory pool leak of 1.000000 Mb(s) at 0x200000 in kernel_2 at step 2.\n"));
    let (names, known): (Vec<&str>, Vec<&str>) =
        classic.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with("kernel_"));
    assert_eq!(known.len(), 6, "{classic}");
    assert_eq!(names, ["kernel_2 is add", "kernel_3 is add", "kernel_4 is add", "kernel_5 is add"]);
}

#[test]
fn what_is_kept_once_has_no_growth_per_step() {
    let text = full(&leaks_of(&keeping_in(8, &[3])));
    let table = text.split("Kept and not freed").nth(1).expect("a table");
    assert!(table.lines().nth(1).is_some_and(|line| line.trim_start().starts_with("total")), "{text}");
}

#[test]
fn a_segment_of_the_warm_up_is_no_growth() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x1000_0000, 2 << 20);
    for step in 1..=6u64 {
        dump.step_begin();
        if step == 2 {
            dump.malloc("HAL", 0x2000_0000, 2 << 20);
        }
        dump.malloc_at(0x1000_0000, 100, "/me/a.py(1): f\n").free("PTA", 0x1000_0000);
        dump.malloc_at(0x2000_0000, 100, "/me/a.py(1): f\n").free("PTA", 0x2000_0000).step_end();
    }
    let report = leaks_of(&dump);
    assert!(report.growth.iter().all(|growth| !growth.is_growing()), "{report:?}");
    assert!(!full(&report).contains("per step"), "{}", full(&report));
}

#[test]
fn a_process_without_memory_is_told_nothing_about_leaks() {
    let mut dump = Dump::new();
    dump.snapshot("before").mark("here");
    let report = leaks_of(&dump);
    assert!(!report.saw_memory);
    assert_eq!(full(&report), "");
}

#[test]
fn driver_memory_of_pools_is_named_where_it_is_left() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x20_0000, 2 << 20).malloc("PTA", 0x20_0000, 4096).system("ACL_FINI");
    let report = leaks_of(&dump);
    assert_eq!(report.driver_bytes_of_pools, 2 << 20);
    let said = full(&report).replace('\n', " ");
    let expected = "No leaks found in driver memory. No steps were seen; to judge framework pools, mark steps";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn a_pool_that_was_not_seen_is_named() {
    let mut dump = Dump::new();
    for step in 1..=7u64 {
        dump.step_begin().begin("aten.add").malloc("HAL", 0x10_0000 * step, 64).end("aten.add");
        dump.free("HAL", 0x10_0000 * step).step_end();
    }
    let answers = dump.ask(&Questions { leaks: true, ..Questions::default() });
    let unseen: Vec<&str> = answers.unseen_pools.iter().map(|unseen| unseen.name()).collect();
    assert_eq!(unseen, ["PyTorch's pool"]);
    let said = said(answers.leaks.as_ref().unwrap(), &answers.unseen_pools);
    assert_eq!(said.trim(), "No leaks found in driver memory in 7 steps; PyTorch's pool was not seen.");
    // With a single block of the pool it was seen.
    dump.malloc("PTA", 0x9000_0000, 64);
    assert!(dump.ask(&Questions::default()).unseen_pools.is_empty());
}

/// Pools not seen in a recording of an operator and driver memory that says this about itself.
fn unseen_with(key: ProcessInfoKey, text: &[u8]) -> Vec<String> {
    let mut traced = Traced::new();
    traced.record(Fact::ProcessInfo { key, text });
    traced.record(Fact::Recording { state: RecordingState::On });
    let (device, framework, name) = (Device::Npu(0), Framework::Aten, traced.string("add"));
    traced.record(Fact::OperatorBegin { framework, device, name, detail: StringId::NONE });
    let properties = BlockProperties { pool: Pool::Hal, ..BlockProperties::framework(Pool::PytorchCaching, device) };
    traced.record(Fact::Allocation { properties, address: 0x1000, size_bytes: 64 });
    let answers = traced.ask(&Questions::default());
    answers.unseen_pools.iter().map(|unseen| unseen.describe()).collect()
}

#[test]
fn a_range_of_a_library_is_no_step_of_any_device() {
    let mut traced = Traced::new();
    traced.record(Fact::Recording { state: RecordingState::On });
    let library = traced.string("some library");
    let (first, second) = (Device::Npu(0), Device::Npu(1));
    let message = b"step start";
    for step in 1..=4 {
        traced.record(Fact::RangeBegin { domain: StringId::NONE, device: first, range_id: step, message });
        // On a device without steps of its own, while another one is in a step.
        traced.record(Fact::RangeBegin { domain: library, device: second, range_id: 100 + step, message });
        for (device, address) in [(first, 0x1000), (second, 0x2000)] {
            let properties = BlockProperties::framework(Pool::PytorchCaching, device);
            traced.record(Fact::Allocation { properties, address, size_bytes: 64 });
            traced.record(Fact::Free { properties, address });
        }
        traced.record(Fact::RangeEnd { domain: library, device: second, range_id: 100 + step });
        traced.record(Fact::RangeEnd { domain: StringId::NONE, device: first, range_id: step });
    }
    let pools = traced.ask(&Questions { fluctuation: true, ..Questions::default() }).fluctuation.unwrap();
    let steps_of = |device| pools.iter().find(|pool| pool.device == device).map_or(0, |pool| pool.steps);
    assert!(steps_of(first) > 0);
    assert_eq!(steps_of(second), 0);
}

#[test]
fn recordings_say_themselves_what_was_not_seen() {
    let recorded = unseen_with(ProcessInfoKey::UnseenPools, b"PTA=too late\nnonsense\nHAL=never\nMINDSPORE=as well\n");
    assert_eq!(recorded, ["PyTorch's pool was not seen: too late", "MindSpore's pool was not seen: as well"]);
    let derived = unseen_with(ProcessInfoKey::HostName, b"host");
    assert_eq!(derived, ["PyTorch's pool was not seen: its operators ran on the card, but it reported no memory"]);
    let without_pool = unseen_with(ProcessInfoKey::AllocatorSettings, b"PYTORCH_NO_NPU_MEMORY_CACHING=1\n");
    assert_eq!(without_pool, [""; 0], "the job does not use one");
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
    assert_eq!(report.possible_leaks.len(), 2, "two owners with two steps each");
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
    let text = full(&leaks_of(&dump));
    assert!(text.starts_with("No steps were seen, so it is not known what leaks and what is still needed;"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    dump.system("ACL_FINI");
    let report = leaks_of(&dump);
    assert_eq!(report.driver, DriverVerdict::AfterFinalize);
    assert_eq!((report.after_finalize.len(), report.leaked_bytes()), (1, 1 << 20));
    assert!(
        text::leaks(&report, &[], Style::Classic)
            .contains("Direct Hal memory leak of 1.000000 Mb(s) at 0x1000 in kernel_0 at step 0.")
    );
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
    assert!(full(&report).starts_with("No leaks found, but 3 steps are too few to be sure"));
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
        full(&report)
    };
    assert!(after(4).starts_with("No leaks found, but 4 steps are too few to be sure"), "{}", after(4));
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
    assert!(full(&report).starts_with("No leaks found in 6 steps."), "five of them have ended");
    let mut dump = Dump::new();
    for step in 1..=5u64 {
        dump.step_begin().malloc("PTA", 0x1000 * step, 100).free("PTA", 0x1000 * step);
        if step < 5 {
            dump.step_end();
        }
    }
    let report = leaks_of(&dump);
    assert_eq!(report.few_steps, [FewSteps { device: Device::Npu(0), ended: 4 }]);
    let said = full(&report).replace('\n', " ");
    let expected = "No leaks found in 5 steps, but those that device 0 has ended, 4, are too few to be sure: ";
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
    assert!(!full(&report).contains("per step since"), "it does not grow");
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
    let said = text::fluctuation(&pools, Style::Full);
    assert!(said.starts_with("Least memory in use within a step") && said.ends_with(expected), "{said}");
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
        // What sites gave back after another step had ended, as (step of birth, steps ended by then).
        let mut given_back: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (site, born, at) in freed.iter().filter(|(_, born, at)| born + 1 < *at && *at <= ended) {
            given_back.entry(*site).or_default().push((*born, at - 1));
        }
        let mut sites: BTreeMap<u64, (std::collections::BTreeSet<u64>, u64, u64)> = BTreeMap::new();
        for &(_, size, site, born) in live.iter().filter(|(_, _, _, born)| *born >= 2 && *born < ended) {
            let (steps, bytes, count) = sites.entry(site).or_default();
            steps.insert(born);
            *bytes += size;
            *count += 1;
        }
        let level = |site: u64, ended: u64| {
            live.iter().filter(|(_, _, of, born)| *of == site && *born < ended).count()
        };
        let is_bounded = |site: u64, given_back: &[(u64, u64)], count: u64| {
            let first = given_back[0].1;
            let early = given_back.iter().filter(|(born, _)| *born < first).count();
            let candidates = given_back.iter().filter(|(born, _)| *born >= 2).count() as u64;
            level(site, ended) <= early + level(site, first) || candidates >= count
        };
        // Two if a site leaks, one if it may, else zero.
        let certainty = |site: u64, steps: usize, count: u64| match (steps, given_back.get(&site)) {
            (3.., None) => 2,
            (3.., Some(given_back)) if !is_bounded(site, given_back, count) => 2,
            (2, None) => 1,
            _ => 0,
        };
        let expected = |wanted: u8| -> Vec<u64> {
            let mut bytes: Vec<u64> = sites
                .iter()
                .filter(|(site, (steps, _, count))| certainty(**site, steps.len(), *count) == wanted)
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
        prop_assert_eq!(found(&report.leaks), expected(2));
        prop_assert_eq!(found(&report.possible_leaks), expected(1));
        prop_assert_eq!(found(&report.retained_once), expected(0));
    }
}

//! Limits for automatic tests.

use msmemscope_analysis::check::RuleOutcome::{Broken, Passed, Unjudged};
use msmemscope_analysis::check::{RuleOutcome, Rules, check};
use msmemscope_report::rules::verdict;

use crate::support::Dump;

fn verdicts(dump: &Dump, rules: Rules) -> Vec<(RuleOutcome, String)> {
    let answers = [dump.ask(&rules.questions())];
    check(&answers, &rules, &[]).into_iter().map(|result| (result.outcome, verdict(&result))).collect()
}

fn leaking(steps: u64) -> Dump {
    let mut dump = Dump::new();
    for step in 1..=steps {
        dump.step_begin();
        dump.malloc_at(0x10_0000 * step, 1 << 20, "/me/train.py(5): step\n");
        dump.step_end();
    }
    dump
}

#[test]
fn the_peak_is_checked() {
    let dump = leaking(4);
    let peak = |limit| verdicts(&dump, Rules { maximum_peak_bytes: Some(limit), ..Rules::default() }).remove(0);
    let within = "peak 4.0 MiB (PyTorch caching on device 0, process 7), limit 4.0 MiB";
    assert_eq!(peak(4 << 20), (Passed, within.to_owned()));
    assert_eq!(peak((4 << 20) - 1), (Broken, format!("{within}; most at /me/train.py:5 step")));
    let nothing = verdicts(Dump::new().mark("x"), Rules { maximum_peak_bytes: Some(1), ..Rules::default() });
    assert_eq!(nothing, [(Unjudged, "no device memory was seen".to_owned())]);
}

#[test]
fn leaks_are_checked() {
    let rules = |limit| Rules { maximum_leaked_bytes: Some(limit), ..Rules::default() };
    assert_eq!(
        verdicts(&leaking(6), rules(0)),
        [(Broken, "4.0 MiB leaked, limit 0 B; most at /me/train.py:5 step".to_owned())]
    );
    assert_eq!(verdicts(&leaking(6), rules(4 << 20))[0].0, Passed);
}

#[test]
fn leaks_that_cannot_be_judged_do_not_pass() {
    let rules = Rules { maximum_leaked_bytes: Some(0), ..Rules::default() };
    let only = |dump: &Dump| verdicts(dump, rules).remove(0);
    let few = only(&leaking(3));
    assert_eq!(few, (Unjudged, "no leaks found, but 3 steps cannot show a leak (process 7)".to_owned()));
    let two = only(&leaking(4));
    let expected = "2.0 MiB kept in two steps only, which may be a leak; most at /me/train.py:5 step";
    assert_eq!(two, (Unjudged, expected.to_owned()));
    let without_steps = only(Dump::new().malloc("HAL", 0x1000, 64).malloc("PTA", 0x1000, 64).system("ACL_FINI"));
    assert_eq!(without_steps, (Unjudged, "no leaks found, but no steps were marked (process 7)".to_owned()));
    let driver_only = only(Dump::new().malloc("HAL", 0x1000, 64).free("HAL", 0x1000).system("ACL_FINI"));
    assert_eq!(driver_only, (Passed, "no leaks".to_owned()), "aclFinalize says enough about driver memory");
    assert_eq!(only(Dump::new().mark("x")).0, Unjudged);
    let mut late = Dump::new();
    for _ in 0..7 {
        late.step_begin().begin("add").malloc("HAL", 0x1000, 64).free("HAL", 0x1000).end("add").step_end();
    }
    let (outcome, verdict) = only(&late);
    assert_eq!(outcome, Unjudged);
    assert!(verdict.starts_with("no leaks found, but PyTorch's pool was not seen: "), "{verdict}");
}

#[test]
fn nothing_at_all_keeps_no_rule() {
    let rules = Rules {
        maximum_peak_bytes: Some(1 << 40),
        maximum_leaked_bytes: Some(0),
        maximum_inefficient_share: Some(1.0),
    };
    let results = check(&[], &rules, &[]);
    let outcomes: Vec<_> = results.iter().map(|result| (result.rule, result.outcome)).collect();
    assert_eq!(outcomes, [("max-peak", Unjudged), ("no-leaks", Unjudged), ("max-inefficient", Unjudged)]);
    assert_eq!(verdict(&results[1]), "no device memory was seen");
}

#[test]
fn inefficiency_needs_accesses() {
    let rules = Rules { maximum_inefficient_share: Some(0.05), ..Rules::default() };
    assert_eq!(verdicts(&leaking(2), rules)[0].0, Unjudged);
    let mut dump = Dump::new();
    dump.begin("a").malloc("PTA", 0x1000, 100).end("a");
    dump.begin("b").access("READ", "b", 0x1000).end("b").begin("c").malloc("PTA", 0x2000, 100).end("c");
    dump.free("PTA", 0x1000);
    assert_eq!(verdicts(&dump, rules), [(Broken, "inefficient use costs 50.0 % of a peak, limit 5.0 %".to_owned())]);
}

#[test]
fn without_all_events_no_rule_is_kept() {
    let rules = Rules {
        maximum_peak_bytes: Some(1 << 40),
        maximum_leaked_bytes: Some(1 << 40),
        maximum_inefficient_share: Some(1.0),
    };
    let answers = [leaking(6).ask(&rules.questions())];
    let lost = ["19,225 events lost: disk full (process 7)".to_owned(), "1 rows skipped".to_owned()];
    let results = check(&answers, &rules, &lost);
    assert_eq!(results.len(), 3);
    let begin = "19,225 events lost: disk full (process 7), 1 rows skipped; recorded: ";
    let is_open = |outcome| outcome == Unjudged;
    assert!(results.iter().all(|result| is_open(result.outcome) && verdict(result).starts_with(begin)), "{results:?}");
    assert!(verdict(&results[0]).contains("recorded: peak 6.0 MiB"), "{results:?}");
}

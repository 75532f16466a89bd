//! Limits for automatic tests.

use msmemscope_analysis::check::{Rules, check};

use crate::support::Dump;

fn verdicts(dump: &Dump, rules: Rules) -> Vec<(bool, String)> {
    let answers = [dump.ask(&rules.questions())];
    check(&answers, &rules, &[]).into_iter().map(|result| (result.passed, result.verdict)).collect()
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
    assert_eq!(
        peak(4 << 20),
        (true, "peak 4.00 MiB (PyTorch caching on device 0, process 7), limit 4.00 MiB".to_owned())
    );
    assert!(!peak((4 << 20) - 1).0);
}

#[test]
fn leaks_are_checked() {
    let rules = |limit| Rules { maximum_leaked_bytes: Some(limit), ..Rules::default() };
    assert_eq!(
        verdicts(&leaking(6), rules(0)),
        [(false, "4.00 MiB leaked, limit 0 B; most at /me/train.py:5 step".to_owned())]
    );
    assert!(verdicts(&leaking(6), rules(4 << 20))[0].0);
    assert!(verdicts(&leaking(3), rules(0))[0].1.contains("too few steps"));
}

#[test]
fn inefficiency_needs_accesses() {
    let rules = Rules { maximum_inefficient_share: Some(0.05), ..Rules::default() };
    assert!(!verdicts(&leaking(2), rules)[0].0);
    let mut dump = Dump::new();
    dump.begin("a").malloc("PTA", 0x1000, 100).end("a");
    dump.begin("b").access("READ", "b", 0x1000).end("b").begin("c").malloc("PTA", 0x2000, 100).end("c");
    dump.free("PTA", 0x1000);
    assert_eq!(verdicts(&dump, rules), [(false, "inefficient use costs 50.0 % of a peak, limit 5.0 %".to_owned())]);
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
    let begin = "cannot be checked: 19,225 events lost: disk full (process 7), 1 rows skipped; recorded: ";
    assert!(results.iter().all(|result| !result.passed && result.verdict.starts_with(begin)), "{results:?}");
    assert!(results[0].verdict.contains("recorded: peak 6.00 MiB"), "{results:?}");
}

//! Replays of jobs made up event by event.

mod job;

use job::{Job, MIB};
use msmemscope_replay::{AllocatorSettings, Conditions, Sizes, Wanted, replay, smallest_card, study};

fn settings(text: &str) -> AllocatorSettings {
    AllocatorSettings::parse(text).expect("settings")
}

fn on_card(text: &str, card_mebibytes: u64) -> Conditions {
    Conditions { settings: settings(text), card_bytes: Some(card_mebibytes * MIB), ..Conditions::default() }
}

/// Every second of many blocks is freed; then a block is wanted that fits into no gap.
fn fragmented() -> Job {
    let mut job = Job::new(Some(100 * MIB));
    for number in 0..4u64 {
        job.segment(number * 32 * MIB, 20 * MIB);
        job.allocate(number * 32 * MIB, 9 * MIB, (number + 1) * 20 * MIB);
        job.allocate(number * 32 * MIB + 9 * MIB, 9 * MIB, (number + 1) * 20 * MIB);
    }
    for number in 0..4u64 {
        job.free(number * 32 * MIB, 80 * MIB);
    }
    job.refused(30 * MIB);
    job
}

#[test]
fn a_job_that_ran_out_runs_out_again_and_fits_with_expandable_segments() {
    let [requests] = fragmented().requests("").try_into().expect("one card");
    let refused = requests.refused.first().copied();
    assert_eq!(refused.map(|refused| refused.asked_bytes), Some(30 * MIB));
    let requests = requests.up_to_refused(refused);
    let as_recorded = replay(&requests, &on_card("", 100));
    let failure = as_recorded.failure.expect("runs out");
    assert_eq!((failure.allocations_before, failure.asked_bytes, failure.reserved_bytes), (8, 30 * MIB, 80 * MIB));
    let expandable = replay(&requests, &on_card("expandable_segments:True", 120));
    assert!(expandable.fits() && expandable.peak_reserved_bytes <= 120 * MIB, "{expandable:?}");
}

#[test]
fn sizes_are_known_unless_a_large_block_was_handed_out_whole() {
    let mut job = Job::new(None);
    job.segment(0, 20 * MIB);
    job.allocate(0, 5 * MIB, 20 * MIB);
    job.allocate(5 * MIB, 5 * MIB, 20 * MIB);
    job.segment(64 * MIB, 2 * MIB);
    job.allocate(64 * MIB, 512, 22 * MIB);
    let [exact] = job.requests("").try_into().expect("one card");
    assert_eq!(exact.inexact(), 0);
    job.segment(128 * MIB, 40 * MIB);
    job.allocate(128 * MIB, 40 * MIB, 62 * MIB);
    let [inexact] = job.requests("").try_into().expect("one card");
    assert_eq!(inexact.inexact(), 1);
    let conditions = |sizes| Conditions { settings: settings("expandable_segments:True"), card_bytes: None, sizes };
    let (most, least) = (replay(&inexact, &conditions(Sizes::Largest)), replay(&inexact, &conditions(Sizes::Smallest)));
    assert_eq!(most.peak_used_bytes - least.peak_used_bytes, MIB);
    let [expandable] = job.requests("expandable_segments:True").try_into().expect("one card");
    assert_eq!(expandable.inexact(), 0);
}

#[test]
fn what_the_job_gave_back_is_given_back_again() {
    let mut job = Job::new(None);
    job.segment(0, 40 * MIB);
    job.allocate(0, 40 * MIB, 40 * MIB);
    job.free(0, 40 * MIB);
    job.segment_freed(0);
    job.segment(64 * MIB, 60 * MIB);
    job.allocate(64 * MIB, 60 * MIB, 60 * MIB);
    let [requests] = job.requests("").try_into().expect("one card");
    let study = study(7, requests, &Wanted::default(), &mut |_, _| {});
    assert!(study.agreement.is_exact(), "{:?}", study.agreement);
    assert_eq!(study.agreement.driver_calls, [3, 3]);
    assert_eq!((study.recorded.peak_reserved_bytes, study.smallest_cards[0].card_bytes), (60 * MIB, 60 * MIB));
}

#[test]
fn the_smallest_card_is_smaller_than_the_peak_if_cached_memory_can_be_given_back() {
    let mut job = Job::new(None);
    job.segment(0, 40 * MIB);
    job.allocate(0, 40 * MIB, 40 * MIB);
    job.free(0, 40 * MIB);
    job.segment(64 * MIB, 60 * MIB);
    job.allocate(64 * MIB, 60 * MIB, 100 * MIB);
    let [requests] = job.requests("").try_into().expect("one card");
    let card_bytes = smallest_card(&requests, &requests.settings);
    assert_eq!(card_bytes, 60 * MIB);
    assert!(replay(&requests, &on_card("", 60)).fits());
    assert!(!replay(&requests, &on_card("", 58)).fits());
}

#[test]
fn a_sweep_ranks_what_fits_before_what_reserves_less() {
    let [requests] = fragmented().requests("").try_into().expect("one card");
    let study =
        study(7, requests, &Wanted { sweep: true, card_bytes: Some(120 * MIB), settings: None }, &mut |_, _| {});
    assert!(study.ran_out && study.trials.len() > 8);
    let ranks: Vec<_> =
        study.trials.iter().map(|trial| (!trial.outcome.fits(), trial.outcome.peak_reserved_bytes)).collect();
    assert!(ranks.is_sorted(), "{ranks:?}");
    assert!(study.trials[0].outcome.fits());
}

#[test]
fn blocks_are_used_again_on_their_stream_alone() {
    let mut job = Job::new(None);
    job.segment(0, 40 * MIB);
    job.allocate(0, 40 * MIB, 40 * MIB);
    job.free(0, 40 * MIB);
    // Another stream needs memory of its own.
    job.segment(64 * MIB, 40 * MIB);
    job.allocate_on(96, 64 * MIB, 40 * MIB, 80 * MIB);
    job.free_on(96, 64 * MIB, 80 * MIB);
    job.allocate(0, 40 * MIB, 80 * MIB);
    job.allocate_on(96, 64 * MIB, 40 * MIB, 80 * MIB);
    let [requests] = job.requests("").try_into().expect("one card");
    let study = study(7, requests, &Wanted::default(), &mut |_, _| {});
    assert!(study.agreement.is_exact(), "{:?}", study.agreement);
    assert_eq!((study.streams, study.smallest_cards[0].card_bytes), (2, 80 * MIB));
}

#[test]
fn a_card_of_no_size_is_no_card() {
    let mut job = Job::new(None);
    job.card_sample(0);
    job.segment(0, 40 * MIB);
    job.allocate(0, 40 * MIB, 40 * MIB);
    let [requests] = job.requests("").try_into().expect("one card");
    assert_eq!(requests.recorded.card_bytes, None);
    let study = study(7, requests, &Wanted::default(), &mut |_, _| {});
    assert!(study.agreement.is_exact() && study.agreement.events == 1, "{:?}", study.agreement);
}

#[test]
fn a_model_that_ran_out_where_the_job_did_not_differs_by_all_that_followed() {
    let mut job = Job::new(Some(30 * MIB));
    job.segment(0, 40 * MIB);
    job.allocate(0, 40 * MIB, 40 * MIB);
    job.free(0, 40 * MIB);
    let [requests] = job.requests("").try_into().expect("one card");
    let agreement = study(7, requests, &Wanted::default(), &mut |_, _| {}).agreement;
    assert_eq!((agreement.events, agreement.differing, agreement.largest_difference_bytes), (2, 2, 40 * MIB));
}

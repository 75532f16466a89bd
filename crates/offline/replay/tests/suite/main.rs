//! Replays of jobs made up event by event.

mod job;

use job::{Job, MIB};
use msmemscope_replay::{AllocatorSettings, Collector, Conditions, Sizes, Trial, Wanted, replay, smallest_card, study};

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

/// A setting with which the job ends at its first request holds least, and helps nobody.
#[test]
fn where_nothing_fits_what_comes_furthest_stands_first() {
    let [requests] = fragmented().requests("").try_into().expect("one card");
    let wanted = Wanted { sweep: true, card_bytes: Some(60 * MIB), settings: None };
    let study = study(7, requests, &wanted, &mut |_, _| {});
    assert!(study.never_fits() && study.best().is_none());
    let comes_to = |trial: &Trial| trial.outcome.failure.expect("runs out").changes_before;
    assert!(study.trials.is_sorted_by_key(|trial| std::cmp::Reverse(comes_to(trial))));
    assert!(study.trials.iter().any(|trial| comes_to(trial) == 0), "a segment of 64 MiB does not fit");
    assert!(comes_to(&study.trials[0]) > 0);
}

#[test]
fn what_comes_after_the_last_step_is_no_step() {
    let mut job = Job::new(Some(100 * MIB));
    job.segment(0, 40 * MIB);
    job.begins_steps();
    for address in 0..3 {
        job.allocate(address * MIB, MIB, 40 * MIB);
        job.step_ended();
    }
    job.free(0, 40 * MIB);
    let [requests] = job.requests("").try_into().expect("one card");
    assert_eq!((requests.steps.len(), study(7, requests, &Wanted::default(), &mut |_, _| {}).steps), (4, 3));
}

/// A card that is too small for what was recorded is full already: growth says nothing about when.
#[test]
fn growth_fills_no_card_that_is_too_small() {
    let growth = |card_mebibytes: u64| {
        let mut job = Job::new(None);
        job.begins_steps();
        for step in 0..12 {
            job.segment(step * 64 * MIB, 2 * MIB);
            job.allocate(step * 64 * MIB, MIB, (step + 1) * 2 * MIB);
            job.step_ended();
        }
        let [requests] = job.requests("").try_into().expect("one card");
        let wanted = Wanted { card_bytes: Some(card_mebibytes * MIB), ..Wanted::default() };
        study(7, requests, &wanted, &mut |_, _| {}).growth.expect("it grows").steps_until_full
    };
    assert_eq!(growth(34), Some([Some(10); 3]));
    assert_eq!(growth(20), None);
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

/// Another stream works on a freed block while a second one like it is asked for. Only the addresses tell.
fn with_record_stream(settings: &str) -> Job {
    let mut job = Job::new(Some(200 * MIB));
    let is_expandable = !settings.is_empty();
    let segment =
        |job: &mut Job, address| if is_expandable { job.mapped(20 * MIB, 2) } else { job.segment(address, 40 * MIB) };
    segment(&mut job, 0);
    job.allocate(0, 40 * MIB, 40 * MIB);
    job.free(0, 40 * MIB);
    let second = if is_expandable { 40 * MIB } else { 64 * MIB };
    segment(&mut job, second);
    job.allocate(second, 40 * MIB, 80 * MIB);
    job.allocate(0, 40 * MIB, 80 * MIB);
    job.free(second, 80 * MIB);
    job.allocate(second, 40 * MIB, 80 * MIB);
    job
}

#[test]
fn what_another_stream_works_on_is_held_back_in_every_replay() {
    for recorded in ["", "expandable_segments:True"] {
        let [requests] = with_record_stream(recorded).requests(recorded).try_into().expect("one card");
        assert_eq!(requests.held_back, 1, "{recorded}");
        for others in ["", "expandable_segments:True", "large_segment_size_mb:64"] {
            let outcome = replay(&requests, &on_card(others, 200));
            assert_eq!(outcome.peak_reserved_bytes, 80 * MIB, "{recorded} {others}");
        }
        let study = study(7, requests, &Wanted::default(), &mut |_, _| {});
        assert!(study.agreement.is_exact(), "{recorded} {:?}", study.agreement);
        assert_eq!((study.held_back, study.smallest_cards[0].card_bytes), (1, 80 * MIB));
    }
}

/// A job without steps that takes a mebibyte every second, or only for half of its time.
fn growing(seconds: u64, grows_for: u64) -> Job {
    let mut job = Job::new(Some(1000 * MIB));
    for second in 0..seconds {
        job.at_second(second);
        if second < grows_for {
            job.segment(second * 64 * MIB, 2 * MIB);
            job.allocate(second * 64 * MIB, MIB, (second + 1) * 2 * MIB);
        } else {
            job.free(0, grows_for * 2 * MIB);
            job.allocate(0, MIB, grows_for * 2 * MIB);
        }
    }
    job
}

#[test]
fn without_steps_growth_is_told_by_time() {
    let growth = |job: Job| {
        let [requests] = job.requests("").try_into().expect("one card");
        study(7, requests, &Wanted::default(), &mut |_, _| {}).growth_by_time
    };
    let steady = growth(growing(200, 200)).expect("it grows");
    assert!((steady.bytes_per_hour / (3600 * MIB) as f64 - 1.0).abs() < 0.02, "{steady:?}");
    let [expected, least, most] = steady.seconds_until_full.expect("a card").map(|seconds| seconds.expect("a number"));
    // The pool holds two mebibytes for each of the 200.
    assert!((590.0..610.0).contains(&expected) && least <= expected && expected <= most, "{steady:?}");
    assert_eq!(growth(growing(200, 100)), None, "it has grown, and does not any more");
    assert_eq!(growth(growing(30, 30)), None, "it may be building up what it needs");
}

/// A history that begins in the middle knows what was there, and not how it came to be.
#[test]
fn what_was_there_before_is_not_held_against_the_model() {
    let mut job = Job::new(None);
    job.segment(0, 40 * MIB);
    job.there_before(0, 30 * MIB, 80 * MIB);
    job.segment(64 * MIB, 40 * MIB);
    job.there_before(64 * MIB, 40 * MIB, 80 * MIB);
    job.segment(128 * MIB, 20 * MIB);
    job.allocate(128 * MIB, 5 * MIB, 100 * MIB);
    job.free(0, 100 * MIB);
    let [requests] = job.requests("").try_into().expect("one card");
    let agreement = study(7, requests, &Wanted::default(), &mut |_, _| {}).agreement;
    assert_eq!((agreement.events, agreement.differing), (2, 2), "it held more than its blocks needed: {agreement:?}");
    assert_eq!(agreement.largest_difference_bytes, 10 * MIB);
}

/// At the limit that a job has set, the pool gives memory back by itself; what the job asks it to give back is told apart.
#[test]
fn a_limit_of_the_job_is_part_of_its_settings() {
    let limited = |next_bytes: u64| {
        let mut job = Job::new(Some(200 * MIB));
        job.segment(0, 60 * MIB);
        job.allocate(0, 60 * MIB, 60 * MIB);
        job.free(0, 60 * MIB);
        job.segment_freed(0);
        job.segment(64 * MIB, next_bytes);
        job.allocate(64 * MIB, next_bytes, next_bytes);
        let stated = "PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64\nset_per_process_memory_fraction(0)=0.5\n";
        let [requests] = job.requests_of(Collector::of_job(stated).expect("settings")).try_into().expect("one card");
        assert_eq!(requests.settings.to_string(), "max_split_size_mb:64,per_process_memory_fraction:0.5");
        let study = study(7, requests, &Wanted::default(), &mut |_, _| {});
        assert!(study.agreement.is_exact(), "{:?}", study.agreement);
        (study.trials[0].outcome.retries, study.smallest_cards[0].card_bytes)
    };
    assert_eq!(limited(50 * MIB), (0, 120 * MIB), "the job asked for it: the block would have been used again");
    assert_eq!(limited(62 * MIB), (1, 124 * MIB), "both together are more than 100 MiB");
}

/// With blocks that are too large to be split, one of them would have been enough at the limit.
#[test]
fn an_emptied_cache_is_told_from_one_block_that_had_to_go() {
    let mut job = Job::new(Some(200 * MIB));
    for (number, size_bytes) in [40 * MIB, 34 * MIB].into_iter().enumerate() {
        job.segment(number as u64 * 64 * MIB, size_bytes);
        job.allocate(number as u64 * 64 * MIB, size_bytes, number as u64 * 34 * MIB + 40 * MIB);
    }
    for number in 0..2 {
        job.free(number * 64 * MIB, 74 * MIB);
    }
    for number in 0..2 {
        job.segment_freed(number * 64 * MIB);
    }
    job.segment(256 * MIB, 30 * MIB);
    job.allocate(256 * MIB, 30 * MIB, 30 * MIB);
    let stated = "PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:32\nset_per_process_memory_fraction(0)=0.5\n";
    let [requests] = job.requests_of(Collector::of_job(stated).expect("settings")).try_into().expect("one card");
    let study = study(7, requests, &Wanted::default(), &mut |_, _| {});
    assert!(study.agreement.is_exact(), "{:?}", study.agreement);
    assert_eq!(study.agreement.driver_calls, [5, 5]);
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

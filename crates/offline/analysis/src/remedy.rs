//! What would have kept memory from running out, computed by replaying what the job asked of PyTorch's pool.
//!
//! Only for a failure that the job did not get over: the recording is read once more, and its requests go through the
//! model of the allocator, first as recorded (which must run out as the job did, or the model says nothing), then under
//! the other sensible settings.

use msmemscope_event::Pool;
use msmemscope_import::Recording;
use msmemscope_replay::advice::sweep;
use msmemscope_replay::{Collector, Requests, Trial};
use msmemscope_timeline::{TimelineSettings, run};
use serde::Serialize;

use crate::gaps::Room;
use crate::out_of_memory::Failure;

/// The setting with which segments grow.
const JOINS_GAPS: &str = "expandable_segments:True";

/// What other settings of the allocator would have changed: computed, not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// Settings with which it would have fitted; nothing if none of those that were tried would have helped.
    pub settings: Option<String>,
    /// The most the pool would have reserved with them.
    pub peak_reserved_bytes: u64,
    /// Bytes of the card that this process could have had.
    pub card_bytes: u64,
    /// How many settings were tried.
    pub tried: u64,
}

/// Computes a remedy, if the failure is one of PyTorch's pool and the model runs out as the job did.
pub(crate) fn find(recording: &Recording, failure: &Failure) -> Option<Remedy> {
    let (_, total_bytes) = failure.card.filter(|(_, total_bytes)| *total_bytes > 0)?;
    // Of the request that failed nobody has recorded for which of the streams it was.
    let is_of_streams = failure.segments(Room::OtherStream).gap_bytes > 0;
    if failure.exceeds_card() || is_of_streams || !failure.pools.iter().any(|pool| pool.pool == Pool::PytorchCaching) {
        return None;
    }
    let mut collector = Collector::of_job(&failure.allocator.stated).ok()?;
    let timeline = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    run(recording, &timeline, &mut collector, &mut |_, _| {});
    let requests = collector.finish().into_iter().find(|requests| requests.device == failure.device)?;
    let mut refused = requests.refused.iter().find(|refused| refused.timestamp_ns >= failure.timestamp_ns).copied()?;
    // Of segments that grow the driver was asked for a page only.
    refused.asked_bytes = refused.asked_bytes.max(failure.requested_bytes);
    let card_bytes = total_bytes.saturating_sub(failure.others_bytes);
    of_requests(&requests.up_to_refused(Some(refused)), card_bytes)
}

fn of_requests(requests: &Requests, card_bytes: u64) -> Option<Remedy> {
    let trials = sweep(requests, Some(card_bytes), |_, _| {});
    let runs_out_as_recorded = trials.iter().any(|trial| trial.is_recorded && !trial.outcome.fits());
    let fits = |trial: &&Trial| trial.outcome.fits();
    // Other settings keep just these sizes apart; segments that grow join whatever gaps there are.
    let joins_gaps = |trial: &&Trial| fits(trial) && trial.spelling() == JOINS_GAPS;
    let best = trials.iter().find(joins_gaps).or(trials.first()).filter(|_| runs_out_as_recorded)?;
    Some(Remedy {
        settings: Some(best).filter(fits).map(|best| best.spelling().to_owned()),
        peak_reserved_bytes: best.outcome.peak_reserved_bytes,
        card_bytes,
        tried: trials.len() as u64,
    })
}

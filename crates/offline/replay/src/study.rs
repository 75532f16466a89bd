//! All that is said about the pool of one card: how well the model agrees with the recording, what would come of other
//! settings, the smallest card, and where growth leads.

use std::time::Instant;

use msmemscope_event::Device;
use serde::Serialize;

use crate::advice::{Trial, smallest_card, sweep, trial};
use crate::forecast::{Growth, growth};
use crate::replay::{Conditions, replay_watched};
use crate::requests::{Recorded, Requests};
use crate::settings::AllocatorSettings;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Other settings than those of the recording.
    pub settings: Option<AllocatorSettings>,
    /// Another card than that of the recording.
    pub card_bytes: Option<u64>,
    /// Try all sensible settings.
    pub sweep: bool,
}

/// How well the model agrees with what was recorded, under the settings of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Blocks that began or ended.
    pub events: u64,
    /// After how many of them another amount was reserved.
    pub differing: u64,
    /// By how much at most.
    pub largest_difference_bytes: u64,
    /// Calls of the driver, as recorded and as replayed.
    pub driver_calls: [u64; 2],
    /// How long the replay took.
    pub replay_seconds: f64,
}

impl Agreement {
    /// Whether the model did exactly what the allocator did.
    pub fn is_exact(&self) -> bool {
        self.differing == 0 && self.driver_calls[0] == self.driver_calls[1]
    }
}

/// A card on which the job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SmallestCard {
    /// Under these settings.
    pub settings: String,
    /// Bytes.
    pub card_bytes: u64,
}

/// What is said about one card of one process.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// The process.
    pub process_id: u32,
    /// The card.
    #[serde(serialize_with = "as_text")]
    pub device: Device,
    /// Blocks asked for.
    pub allocations: u64,
    /// Those whose size is not known exactly.
    pub inexact_allocations: u64,
    /// Streams that they were asked for on.
    pub streams: usize,
    /// Steps.
    pub steps: u64,
    /// The settings it was recorded with.
    pub recorded_settings: String,
    /// Whether nobody recorded them, so that those of the allocator as delivered are assumed.
    pub settings_are_assumed: bool,
    /// What was recorded.
    pub recorded: Recorded,
    /// Whether the recorded job ran out of memory itself.
    pub ran_out: bool,
    /// How well the model agrees with it.
    pub agreement: Agreement,
    /// Bytes of the card of the replays; without, it never runs out.
    pub card_bytes: Option<u64>,
    /// The replays, the best first.
    pub trials: Vec<Trial>,
    /// The smallest cards.
    pub smallest_cards: Vec<SmallestCard>,
    /// Growth, if there is any.
    pub growth: Option<Growth>,
}

fn as_text<S: serde::Serializer>(device: &Device, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(device)
}

impl Study {
    /// Whether many settings were tried.
    pub fn is_sweep(&self) -> bool {
        self.trials.len() > 2
    }

    /// The replay under the settings of the recording.
    pub fn as_recorded(&self) -> Option<&Trial> {
        self.trials.iter().find(|trial| trial.is_recorded)
    }

    /// The best replay that is clearly better than the settings of the recording.
    pub fn best(&self) -> Option<&Trial> {
        let (best, recorded) = (self.trials.first()?, self.as_recorded()?);
        let rank = |trial: &Trial| (!trial.outcome.fits(), trial.outcome.peak_reserved_bytes);
        (rank(best) < rank(recorded)).then_some(best)
    }
}

/// Studies what one process asked of one card. `progress` is told replays done and all of them.
pub fn study(process_id: u32, requests: Requests, wanted: &Wanted, progress: &mut dyn FnMut(u64, u64)) -> Study {
    let agreement = agreement(&requests);
    let first_refused = requests.refused.first().copied();
    let ran_out = first_refused.is_some();
    let (steps, recorded) = (requests.steps.len() as u64, requests.recorded);
    let card_bytes = wanted.card_bytes.or(recorded.card_bytes);
    let left_bytes = card_bytes.map(|card_bytes| {
        let held_bytes = recorded.peak_reserved_bytes + recorded.peak_outside_bytes;
        card_bytes.saturating_sub(held_bytes)
    });
    let growth = growth(&requests.steps, left_bytes);
    let allocations = requests.allocations();
    // What the job would have asked for next counts.
    let requests = requests.up_to_refused(first_refused);
    let recorded_settings = requests.settings.clone();
    let mut trials = match wanted.sweep {
        true => sweep(&requests, card_bytes, progress),
        false => vec![trial(&requests, &recorded_settings, card_bytes)],
    };
    if let Some(settings) = wanted.settings.as_ref().filter(|settings| **settings != recorded_settings) {
        let shown = settings.to_string();
        if trials.iter().all(|trial| trial.settings != shown) {
            trials.push(trial(&requests, settings, card_bytes));
            crate::advice::rank(&mut trials);
        }
    }
    let mut of_cards: Vec<AllocatorSettings> = vec![recorded_settings.clone()];
    of_cards.extend(wanted.settings.clone());
    if wanted.sweep
        && let Some(best) = trials.first().and_then(|trial| AllocatorSettings::parse(trial.spelling()).ok())
    {
        of_cards.push(best);
    }
    of_cards.dedup();
    let smallest_cards = of_cards
        .iter()
        .map(|settings| SmallestCard { settings: settings.to_string(), card_bytes: smallest_card(&requests, settings) })
        .collect();
    Study {
        process_id,
        device: requests.device,
        allocations,
        inexact_allocations: requests.inexact() as u64,
        streams: requests.streams,
        steps,
        recorded_settings: recorded_settings.to_string(),
        settings_are_assumed: requests.settings_are_assumed,
        recorded,
        ran_out,
        agreement,
        card_bytes,
        trials,
        smallest_cards,
        growth,
    }
}

/// Replays as recorded and compares.
fn agreement(requests: &Requests) -> Agreement {
    let conditions = Conditions {
        settings: requests.settings.clone(),
        card_bytes: requests.recorded.card_bytes,
        ..Conditions::default()
    };
    let mut agreement = Agreement { events: requests.recorded_curve().len() as u64, ..Agreement::default() };
    let started = Instant::now();
    let mut recorded = requests.recorded_curve().iter();
    let outcome = replay_watched(requests, &conditions, |_, reserved_bytes| {
        let Some(&recorded_bytes) = recorded.next() else { return };
        let difference = recorded_bytes.abs_diff(reserved_bytes);
        agreement.differing += u64::from(difference > 0);
        agreement.largest_difference_bytes = agreement.largest_difference_bytes.max(difference);
    });
    agreement.replay_seconds = started.elapsed().as_secs_f64();
    // Where the model ran out and the job did not, it holds nothing of what was recorded from there on.
    agreement.differing += recorded.len() as u64;
    let largest_missed = recorded.max().copied().unwrap_or(0);
    agreement.largest_difference_bytes = agreement.largest_difference_bytes.max(largest_missed);
    let counted = requests.recorded.driver_allocations + requests.recorded.driver_frees;
    agreement.driver_calls = [counted, outcome.driver_calls()];
    agreement
}

//! All that is said about the pool of one card: how well the model agrees with the recording, what would come of other
//! settings, the smallest card, and where growth leads.

use msmemscope_event::Device;
use serde::Serialize;

use crate::advice::{Trial, smallest_card, sweep, trial};
pub use crate::agreement::Agreement;
use crate::agreement::agreement;
use crate::forecast::{Growth, GrowthByTime, growth, growth_by_time};
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
    /// Freed blocks that the pool used again only later, because another stream still worked on them.
    pub held_back: u64,
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
    /// Growth from step to step, if there is any.
    pub growth: Option<Growth>,
    /// Growth by time, if there is any and there are too few steps.
    pub growth_by_time: Option<GrowthByTime>,
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

    /// The best replay, if it runs to its end and is clearly better than the settings of the recording.
    pub fn best(&self) -> Option<&Trial> {
        let (best, recorded) = (self.trials.first()?, self.as_recorded()?);
        let rank = |trial: &Trial| (!trial.outcome.fits(), trial.outcome.peak_reserved_bytes);
        (best.outcome.fits() && rank(best) < rank(recorded)).then_some(best)
    }

    /// Whether the job runs to its end with none of the settings.
    pub fn never_fits(&self) -> bool {
        !self.trials.iter().any(Trial::may_fit)
    }
}

/// Studies what one process asked of one card. `progress` is told replays done and all of them.
pub fn study(process_id: u32, requests: Requests, wanted: &Wanted, progress: &mut dyn FnMut(u64, u64)) -> Study {
    let agreement = agreement(&requests);
    let first_refused = requests.refused.first().copied();
    let ran_out = first_refused.is_some();
    let (steps, recorded) = (requests.ended_steps(), requests.recorded);
    let card_bytes = wanted.card_bytes.or(recorded.card_bytes);
    // When a card is full that is too small for what was recorded, nobody can tell from the growth.
    let held_bytes = recorded.peak_reserved_bytes + recorded.peak_outside_bytes;
    let left_bytes = card_bytes.and_then(|card_bytes| card_bytes.checked_sub(held_bytes));
    let growth = growth(&requests.steps, left_bytes);
    let growth_by_time = growth_by_time(&requests, left_bytes);
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
        held_back: requests.held_back,
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
        growth_by_time,
    }
}

//! What holds memory at a moment: at the peak of a pool, at a time or at the end of a step, by line of code.
//!
//! Blocks are summed up by where they come from while the events go by, so that a moment costs time in proportion to
//! the places, not to the blocks. The peak is known only afterwards: whenever a pool holds more than ever before, the
//! sums are copied just before they fall again.

use msmemscope_event::{AutogradPhase, Device, Pool, StackId, StringId};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::names::{Names, SiteText};
use crate::situation::{BlockChange, LiveBlock, Situation, StepChange};
use crate::small_map::SmallMap;

/// Which moment is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// When the pool held most.
    Peak,
    /// This long after the first event.
    Time {
        /// Nanoseconds.
        since_start_ns: u64,
    },
    /// At the end of a step.
    Step {
        /// Its number.
        number: u64,
    },
}

/// Where blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    native_stack: StackId,
    python_stack: StackId,
    operator: StringId,
    module: StringId,
    phase: Option<AutogradPhase>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    blocks: u64,
    /// The latest block of the place, which stands for all when it gets its name.
    example: LiveBlock,
}

type Places = FxHashMap<Place, Held>;

/// The sums of a pool at one moment.
#[derive(Clone, Debug)]
struct Picture {
    moment: Moment,
    timestamp_ns: u64,
    step: u64,
    used_bytes: u64,
    places: Places,
}

/// Sums of one pool, and what they were at the moments asked about.
#[derive(Debug, Default)]
struct PoolState {
    places: Places,
    used_bytes: u64,
    /// When more was held than ever before, and how much.
    peak: (u64, u64, u64),
    /// The sums have not been copied since then.
    is_at_peak: bool,
    at_peak: Option<Picture>,
    others: Vec<Picture>,
}

impl PoolState {
    fn picture(&self, moment: Moment, timestamp_ns: u64, step: u64) -> Picture {
        Picture { moment, timestamp_ns, step, used_bytes: self.used_bytes, places: self.places.clone() }
    }

    fn keep_peak(&mut self) {
        if self.is_at_peak {
            let (_, timestamp_ns, step) = self.peak;
            self.at_peak = Some(self.picture(Moment::Peak, timestamp_ns, step));
            self.is_at_peak = false;
        }
    }

    fn begins(&mut self, block: &LiveBlock) {
        let held = self.places.entry(Place::of(block)).or_insert(Held { bytes: 0, blocks: 0, example: *block });
        held.bytes = held.bytes.saturating_add(block.size_bytes);
        held.blocks += 1;
        held.example = *block;
        self.used_bytes = self.used_bytes.saturating_add(block.size_bytes);
        if self.used_bytes > self.peak.0 {
            self.peak = (self.used_bytes, block.timestamp_ns, block.step);
            self.is_at_peak = true;
        }
    }

    fn ends(&mut self, block: &LiveBlock) {
        self.keep_peak();
        self.used_bytes = self.used_bytes.saturating_sub(block.size_bytes);
        if let Some(held) = self.places.get_mut(&Place::of(block)) {
            held.bytes = held.bytes.saturating_sub(block.size_bytes);
            held.blocks = held.blocks.saturating_sub(1);
            if held.blocks == 0 {
                self.places.remove(&Place::of(block));
            }
        }
    }
}

impl Place {
    fn of(block: &LiveBlock) -> Self {
        Self {
            native_stack: block.native_stack,
            python_stack: block.python_stack,
            operator: block.operator,
            module: block.module,
            phase: block.phase,
        }
    }
}

/// What one line of code holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineUse {
    /// Bytes of all blocks that it allocated.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Where, with the stack of one of them.
    pub site: SiteText,
    /// Operators that asked for the blocks, the one with most bytes first.
    pub operators: Vec<String>,
    /// Modules that were being called, likewise.
    pub modules: Vec<String>,
    /// Phases of training, likewise.
    pub phases: Vec<&'static str>,
}

/// A pool at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolMoment {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Which moment, in the words of the option: `peak`, `step:7`, `12.3s`.
    pub moment: String,
    /// When, wall clock.
    pub timestamp_ns: u64,
    /// When, since the first event.
    pub since_start_ns: u64,
    /// In which step, zero if none.
    pub step: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Lines that hold most, largest first.
    pub lines: Vec<LineUse>,
    /// Lines beyond those.
    pub other_lines: u64,
    /// Bytes of those.
    pub other_bytes: u64,
}

/// What held memory at the moments asked about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MomentReport {
    /// By device and pool.
    pub pools: Vec<PoolMoment>,
}

/// Lines kept of a pool; the rest are summed up.
const KEPT_LINES: usize = 100;

/// Follows what places hold.
#[derive(Debug)]
pub struct Moments {
    wanted: Vec<Moment>,
    /// Moments given by time that have not come yet, earliest last.
    times_ns: Vec<u64>,
    first_ns: Option<u64>,
    pools: SmallMap<(Device, Pool), PoolState>,
}

impl Moments {
    /// Looks at these moments.
    pub fn new(wanted: Vec<Moment>) -> Self {
        let mut times_ns: Vec<u64> = wanted
            .iter()
            .filter_map(|moment| match moment {
                Moment::Time { since_start_ns } => Some(*since_start_ns),
                _ => None,
            })
            .collect();
        times_ns.sort_unstable_by(|a, b| b.cmp(a));
        Self { wanted, times_ns, first_ns: None, pools: SmallMap::default() }
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, situation: &Situation) {
        self.time_passes(situation);
        let (BlockChange::Begins(block, _) | BlockChange::Ends(block, _)) = change;
        let state = self.pools.entry((block.properties.device, block.properties.pool));
        match change {
            BlockChange::Begins(block, _) => state.begins(block),
            BlockChange::Ends(block, _) => state.ends(block),
        }
    }

    /// Takes the pictures of moments that lie before the current event.
    #[inline]
    fn time_passes(&mut self, situation: &Situation) {
        let now_ns = situation.latest_ns();
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        while let Some(&since_start_ns) = self.times_ns.last()
            && now_ns.saturating_sub(first_ns) > since_start_ns
        {
            self.times_ns.pop();
            self.keep(Moment::Time { since_start_ns }, first_ns.saturating_add(since_start_ns), None, situation);
        }
    }

    fn keep(&mut self, moment: Moment, timestamp_ns: u64, device: Option<Device>, situation: &Situation) {
        for (key, state) in self.pools.iter_mut() {
            if device.is_none_or(|device| device == key.0) {
                let picture = state.picture(moment, timestamp_ns, situation.steps(key.0).number);
                state.others.push(picture);
            }
        }
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange, situation: &Situation) {
        let moment = Moment::Step { number: change.number };
        if !change.begins && self.wanted.contains(&moment) {
            let device = Some(change.device).filter(|device| *device != Device::Unknown);
            self.keep(moment, situation.latest_ns(), device, situation);
        }
    }

    /// The report. Call after the last event.
    pub fn finish(mut self, situation: &Situation, names: &dyn Names) -> MomentReport {
        // What was asked for beyond the end is what held at the end.
        let times_ns = std::mem::take(&mut self.times_ns);
        for since_start_ns in times_ns.into_iter().rev() {
            self.keep(Moment::Time { since_start_ns }, situation.latest_ns(), None, situation);
        }
        let wants_peak = self.wanted.contains(&Moment::Peak);
        let first_ns = self.first_ns.unwrap_or(0);
        let mut pools = Vec::new();
        for (&(device, pool), state) in self.pools.iter_mut() {
            state.keep_peak();
            let at_peak = state.at_peak.take().filter(|_| wants_peak);
            for picture in at_peak.into_iter().chain(state.others.drain(..)) {
                pools.push(pool_moment(device, pool, picture, first_ns, situation, names));
            }
        }
        pools.sort_by_key(|moment| (moment.device, moment.pool, moment.timestamp_ns));
        MomentReport { pools }
    }
}

fn phase_word(phase: AutogradPhase) -> &'static str {
    match phase {
        AutogradPhase::Forward => "forward",
        AutogradPhase::Backward => "backward",
        AutogradPhase::Optimizer => "optimizer",
        AutogradPhase::Other => "other",
    }
}

/// Puts the places of one line together.
fn pool_moment(
    device: Device,
    pool: Pool,
    picture: Picture,
    first_ns: u64,
    situation: &Situation,
    names: &dyn Names,
) -> PoolMoment {
    let mut places: Vec<(Place, Held)> = picture.places.into_iter().collect();
    // Largest first, and always the same order among equals.
    places.sort_by_key(|(place, held)| (std::cmp::Reverse(held.bytes), held.example.birth, place.operator.0));
    let mut lines: Vec<LineUse> = Vec::new();
    let mut by_line: FxHashMap<String, usize> = FxHashMap::default();
    for (place, held) in places {
        let site = SiteText::of(&held.example, situation, names);
        let index = *by_line.entry(site.line.clone()).or_insert_with(|| {
            lines.push(LineUse {
                bytes: 0,
                blocks: 0,
                operators: Vec::new(),
                modules: Vec::new(),
                phases: Vec::new(),
                site: site.clone(),
            });
            lines.len() - 1
        });
        let line = &mut lines[index];
        line.bytes = line.bytes.saturating_add(held.bytes);
        line.blocks += held.blocks;
        add_new(&mut line.operators, site.operator);
        add_new(&mut line.modules, names.text(place.module));
        if let Some(word) = place.phase.map(phase_word).filter(|word| !line.phases.contains(word)) {
            line.phases.push(word);
        }
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
    let others = lines.split_off(lines.len().min(KEPT_LINES));
    PoolMoment {
        device,
        pool,
        moment: picture.moment.word(),
        timestamp_ns: picture.timestamp_ns,
        since_start_ns: picture.timestamp_ns.saturating_sub(first_ns),
        step: picture.step,
        used_bytes: picture.used_bytes,
        other_lines: others.len() as u64,
        other_bytes: others.iter().map(|line| line.bytes).sum(),
        lines,
    }
}

fn add_new(words: &mut Vec<String>, word: String) {
    if !word.is_empty() && !words.contains(&word) {
        words.push(word);
    }
}

impl Moment {
    /// In the words of the option.
    pub fn word(self) -> String {
        match self {
            Moment::Peak => "peak".to_owned(),
            Moment::Time { since_start_ns } => format!("{}s", since_start_ns as f64 / 1e9),
            Moment::Step { number } => format!("step:{number}"),
        }
    }

    /// What the words of the option say: `peak`, `step:7`, or a time such as `12.3s` or `250ms`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "peak" {
            return Some(Moment::Peak);
        }
        if let Some(number) = text.strip_prefix("step:") {
            return number.parse().ok().filter(|number| *number > 0).map(|number| Moment::Step { number });
        }
        let (number, unit_ns) = match text.strip_suffix("ms") {
            Some(number) => (number, 1e6),
            None => (text.strip_suffix('s')?, 1e9),
        };
        let nanoseconds = number.parse::<f64>().ok()? * unit_ns;
        (nanoseconds >= 0.0 && nanoseconds < u64::MAX as f64)
            .then_some(Moment::Time { since_start_ns: nanoseconds as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_words() {
        for (text, moment) in [
            ("peak", Some(Moment::Peak)),
            ("step:7", Some(Moment::Step { number: 7 })),
            ("12.3s", Some(Moment::Time { since_start_ns: 12_300_000_000 })),
            ("250ms", Some(Moment::Time { since_start_ns: 250_000_000 })),
            ("step:0", None),
            ("-1s", None),
            ("nans", None),
            ("later", None),
            ("", None),
        ] {
            assert_eq!(Moment::parse(text), moment, "{text}");
        }
        assert_eq!(Moment::parse("12.3s").map(Moment::word).as_deref(), Some("12.3s"));
        assert_eq!(Moment::parse("step:7").map(Moment::word).as_deref(), Some("step:7"));
    }
}

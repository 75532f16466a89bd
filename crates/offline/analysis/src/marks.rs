//! Leaks between three marks A, B, C of the same text: what is allocated between A and B has to be
//! freed before C. Driver memory behind a framework pool is told apart: the pool keeps it for later.

use msmemscope_event::{Device, Pool};
use msmemscope_timeline::{EventKind, TimelineEvent};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::backing::Backing;
use crate::device_text::{device_text, pool_text};
use crate::names::{Names, SiteText};
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, LiveBlock, Situation};

/// Which marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkSettings {
    /// Text of the marks.
    pub message: String,
    /// Which mark with this text is A, counted from zero per device.
    pub start_index: u64,
}

/// A block that was not freed in time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MarkLeak {
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// `ID` of its row in a dump, or the number of its allocation.
    pub index: u64,
    /// Where it was allocated.
    pub site: SiteText,
}

/// How far a device got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkOutcome {
    /// All three marks were seen.
    Complete,
    /// Fewer than three marks with this text.
    TooFewMarks,
    /// Marks enough, but not from this index on.
    IndexOutOfRange,
}

/// What was found on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceMarkLeaks {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Marks with this text.
    pub marks: u64,
    /// Whether the question could be answered.
    pub outcome: MarkOutcome,
    /// Blocks that were not freed in time, in allocation order.
    pub leaks: Vec<MarkLeak>,
    /// Driver blocks among them that a framework pool keeps; they are not listed.
    pub kept_by_pools: u64,
    /// Bytes of these.
    pub kept_by_pools_bytes: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MarkLeakReport {
    /// Text of the marks.
    pub message: String,
    /// Index of A.
    pub start_index: u64,
    /// Every device that has marks or memory.
    pub devices: Vec<DeviceMarkLeaks>,
}

#[derive(Debug, Default)]
struct DeviceState {
    marks: u64,
    /// Blocks allocated between A and B, and whether they turned out to back a pool.
    open: FxHashMap<u64, (LiveBlock, bool)>,
}

/// Follows the marks.
#[derive(Debug)]
pub struct MarkLeaks {
    settings: MarkSettings,
    devices: FxHashMap<Device, DeviceState>,
    /// Marks that belong to no device, such as those before the first use of one: they count for all devices.
    marks_of_all: u64,
    backing: Backing,
}

impl MarkLeakReport {
    /// Whether the question could be answered on any device.
    pub fn is_answered(&self) -> bool {
        self.devices.iter().any(|device| device.outcome == MarkOutcome::Complete)
    }
}

impl MarkLeaks {
    /// Nothing seen yet.
    pub fn new(settings: MarkSettings) -> Self {
        Self { settings, devices: FxHashMap::default(), marks_of_all: 0, backing: Backing::default() }
    }

    /// The user marked a point. A mark without device counts for all devices.
    pub fn mark(&mut self, event: &TimelineEvent, message: &str) {
        if message != self.settings.message {
            return;
        }
        match event.device {
            Device::Unknown => {
                self.marks_of_all += 1;
                self.devices.values_mut().for_each(|state| state.marks += 1);
            }
            device => self.device(device).marks += 1,
        }
    }

    /// The state of a device, also of one that was not used before.
    #[inline]
    fn device(&mut self, device: Device) -> &mut DeviceState {
        let marks = self.marks_of_all;
        self.devices.entry(device).or_insert_with(|| DeviceState { marks, ..DeviceState::default() })
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>) {
        let a = self.settings.start_index + 1;
        match change {
            BlockChange::Begins(block, _) => {
                let state = self.device(block.properties.device);
                if state.marks == a && !block.shadow {
                    state.open.insert(block.allocation_id, (**block, false));
                }
            }
            BlockChange::Ends(block, _) => {
                if let Some(state) = self.devices.get_mut(&block.properties.device) {
                    if state.marks < a + 2 {
                        state.open.remove(&block.allocation_id);
                    } else if let Some((_, backs_pool)) = state.open.get_mut(&block.allocation_id) {
                        *backs_pool = self.backing.backs_pool(block);
                    }
                }
            }
        }
        self.backing.block(change);
    }

    /// What was found.
    pub fn finish(self, situation: &Situation, names: &dyn Names) -> MarkLeakReport {
        let MarkSettings { message, start_index } = self.settings;
        let backing = self.backing;
        let mut devices: Vec<DeviceMarkLeaks> = self
            .devices
            .into_iter()
            .map(|(device, state)| {
                let outcome = match state.marks {
                    marks if marks >= start_index + 3 => MarkOutcome::Complete,
                    marks if marks >= 3 => MarkOutcome::IndexOutOfRange,
                    _ => MarkOutcome::TooFewMarks,
                };
                let mut leaked: Vec<(LiveBlock, bool)> = match outcome {
                    MarkOutcome::Complete => state.open.into_values().collect(),
                    _ => Vec::new(),
                };
                leaked.sort_unstable_by_key(|(block, _)| block.allocation_id);
                let is_kept = |(block, backs): &(LiveBlock, bool)| {
                    block.properties.pool == Pool::Hal && (*backs || backing.backs_pool(block))
                };
                let kept: Vec<(LiveBlock, bool)> = leaked.extract_if(.., |leak| is_kept(leak)).collect();
                let leaks = leaked
                    .iter()
                    .map(|(block, _)| MarkLeak {
                        pool: block.properties.pool,
                        address: block.address,
                        size_bytes: block.size_bytes,
                        index: names.row_id(block.allocation_id),
                        site: SiteText::of(block, situation, names),
                    })
                    .collect();
                DeviceMarkLeaks {
                    device,
                    marks: state.marks,
                    outcome,
                    leaks,
                    kept_by_pools: kept.len() as u64,
                    kept_by_pools_bytes: kept.iter().map(|(block, _)| block.size_bytes).fold(0, u64::saturating_add),
                }
            })
            .collect();
        devices.sort_by_key(|device| device.device);
        MarkLeakReport { message, start_index, devices }
    }
}

impl Question for MarkLeaks {
    type Finding = MarkLeakReport;

    const IS_USUAL: bool = false;

    /// Which marks is for the user to say.
    fn ask(_questions: &mut Questions) -> bool {
        false
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.marks.clone().map(Self::new)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, _view: View<'_>) {
        self.block(change);
    }

    #[inline]
    fn event(&mut self, event: &TimelineEvent, _view: View<'_>) {
        if let EventKind::Mark { message, .. } = &event.kind {
            self.mark(event, message);
        }
    }

    fn finish(self, view: View<'_>, _end: &mut End<'_>) -> Option<MarkLeakReport> {
        Some(self.finish(view.situation, view.names))
    }
}

//! Which events come out. Filters act at the very end: totals, ids and steps stay what they are.

use msmemscope_event::Device;

use crate::steps::StepSource;

/// Chosen devices. Events without a device always pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFilter {
    /// All NPUs.
    pub all_npus: bool,
    /// Chosen NPUs, if not all are.
    pub npus: Vec<u16>,
    /// Host memory.
    pub host: bool,
}

impl DeviceFilter {
    /// Lets everything through.
    pub const ALL: DeviceFilter = DeviceFilter { all_npus: true, npus: Vec::new(), host: true };

    /// Whether events of a device pass.
    #[inline]
    pub fn includes(&self, device: Device) -> bool {
        match device {
            Device::Npu(id) => self.all_npus || self.npus.contains(&id),
            Device::Host => self.host,
            Device::Unknown => true,
        }
    }
}

/// Chosen kinds of events. Kinds not named here always pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKinds {
    /// MALLOC.
    pub allocations: bool,
    /// FREE.
    pub frees: bool,
    /// Operator and kernel launches.
    pub launches: bool,
    /// ACCESS.
    pub accesses: bool,
}

impl EventKinds {
    /// Everything.
    pub const ALL: EventKinds = EventKinds { allocations: true, frees: true, launches: true, accesses: true };
}

/// Chosen events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFilter {
    /// Devices to show, by physical id.
    pub devices: DeviceFilter,
    /// Kinds to show.
    pub kinds: EventKinds,
}

impl EventFilter {
    /// Lets everything through.
    pub const ALL: EventFilter = EventFilter { devices: DeviceFilter::ALL, kinds: EventKinds::ALL };
}

/// How a pass is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineSettings {
    /// What to show.
    pub filter: EventFilter,
    /// What to show from each later change of the process's own settings on, in their order. After the last, nothing
    /// changes any more.
    pub later_filters: Vec<EventFilter>,
    /// Steps to show; empty means all.
    pub steps: Vec<u64>,
    /// Whether the process has ended. If so, blocks still alive get their closing events.
    pub process_ended: bool,
    /// Where steps come from, if already known (see [`crate::detect_step_source`]). Needed only to
    /// know the first step of a job that counts its steps through the API.
    pub step_source: Option<StepSource>,
}

impl TimelineSettings {
    /// All filters, the first one first.
    pub fn filters(&self) -> impl Iterator<Item = &EventFilter> {
        std::iter::once(&self.filter).chain(&self.later_filters)
    }
}

impl Default for TimelineSettings {
    fn default() -> Self {
        Self {
            filter: EventFilter::ALL,
            later_filters: Vec::new(),
            steps: Vec::new(),
            process_ended: true,
            step_source: None,
        }
    }
}

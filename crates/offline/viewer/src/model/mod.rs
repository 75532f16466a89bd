//! A recording in memory, as columns: small enough for 10^7 events, self-contained, and quick to ask.
//!
//! * `blocks`, `events`, `spans`, `series`: the columns.
//! * `builder`: one pass over a recording that fills them.
//! * `coarse`: a rough curve that can be shown while the pass goes on.
//! * `changes`: bytes in use over time, with level of detail.
//! * `stacks`: call sites and their frames, with names.
//! * `step_use`: what is in use at the ends of steps, and the most within them.
//! * `filter`: which blocks are meant.
//!
//! Times are wall clock nanoseconds; answers count from the start of the session.

pub(crate) mod blocks;
pub(crate) mod builder;
pub(crate) mod changes;
pub(crate) mod coarse;
pub(crate) mod events;
pub(crate) mod filter;
pub(crate) mod regions;
pub(crate) mod series;
pub(crate) mod spans;
pub(crate) mod stacks;
pub(crate) mod step_use;
pub(crate) mod texts;

use msmemscope_event::{Device, Pool};

use blocks::Blocks;
use events::Events;
use regions::Regions;
use series::{CardSeries, StepSeries};
use spans::{Instants, Lanes};
use stacks::Stacks;
use texts::Texts;

/// A pool on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) device: Device,
    pub(crate) pool: Pool,
}

/// A step of a device; the device is unknown if it is one of all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) device: Device,
    pub(crate) number: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Most bytes in use of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    pub(crate) bytes: u64,
    pub(crate) at: u64,
}

/// One recording.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) groups: Vec<Group>,
    pub(crate) peaks: Vec<Peak>,
    pub(crate) end_bytes: Vec<u64>,
    /// What pools say they hold, by group.
    pub(crate) reserved: Vec<StepSeries>,
    pub(crate) regions: Vec<Regions>,
    pub(crate) cards: Vec<CardSeries>,
    pub(crate) blocks: Blocks,
    pub(crate) events: Events,
    pub(crate) operators: Lanes,
    pub(crate) ranges: Lanes,
    pub(crate) kernels: Lanes,
    pub(crate) calls: Lanes,
    pub(crate) instants: Vec<Instants>,
    pub(crate) steps: Vec<Step>,
    pub(crate) threads: Vec<u32>,
    pub(crate) owners: Vec<String>,
    pub(crate) stacks: Stacks,
    pub(crate) texts: Texts,
}

impl Model {
    /// The group of a pool on a device.
    pub(crate) fn group(&self, device: Device, pool: Pool) -> Option<u16> {
        let position = self.groups.iter().position(|group| group.device == device && group.pool == pool);
        position.map(|position| position as u16)
    }

    /// The group to show first: the framework pool with the highest peak, else the pool with the highest.
    pub(crate) fn main_group(&self) -> Option<u16> {
        let key = |position: &usize| {
            let Group { device, pool } = self.groups[*position];
            let is_framework = matches!(pool, Pool::PytorchCaching | Pool::Mindspore | Pool::Atb);
            (matches!(device, Device::Npu(_)), is_framework, self.peaks[*position].bytes)
        };
        (0..self.groups.len()).max_by_key(key).map(|position| position as u16)
    }

    /// From the first to the last change of the pool to show first, on all devices: programs start and end without device
    /// memory, and take some from the driver long before a framework divides it.
    pub(crate) fn active_range(&self) -> Option<(u64, u64)> {
        let main = self.groups[usize::from(self.main_group()?)].pool;
        self.blocks.active_range(|group| self.groups[usize::from(group)].pool == main)
    }

    /// Steps that count on a device: its own, else those of all devices.
    pub(crate) fn steps_of(&self, device: Device) -> Vec<Step> {
        let of = |wanted: Device| self.steps.iter().filter(move |step| step.device == wanted).copied();
        let own: Vec<Step> = of(device).collect();
        if own.is_empty() { of(Device::Unknown).collect() } else { own }
    }

    /// Number of the step at a time, zero if none.
    pub(crate) fn step_at(&self, device: Device, time: u64) -> u64 {
        let at = |wanted: Device| {
            self.steps.iter().rev().find(|step| step.device == wanted && step.start <= time && time < step.end)
        };
        at(device).or_else(|| at(Device::Unknown)).map_or(0, |step| step.number)
    }
}

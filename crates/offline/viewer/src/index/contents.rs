//! What an index holds of model and findings. Words that the program knows are stored as words and found again in its
//! own table, so that no other ones come back.

use std::io::{self, Write};

use msmemscope_analysis::Frame;
use msmemscope_analysis::fleet::summary::Summary;
use msmemscope_analysis::names::SiteText;
use msmemscope_event::{Device, Pool};
use rustc_hash::FxHashSet;
use serde_json::Value;

use super::stored::{Input, Output, Stored, Unusable, stored};
use crate::entry::Identity;
use crate::findings::{FailureText, Finding, Findings, FragmentationSample, Leak, Severity};
use crate::model::blocks::Blocks;
use crate::model::events::{Detail, Events};
use crate::model::regions::{Region, Regions};
use crate::model::series::{CardSeries, StepSeries};
use crate::model::spans::{Instants, Lane, Lanes};
use crate::model::stacks::{FrameText, Line, Site, Stacks};
use crate::model::texts::Texts;
use crate::model::{Group, Model, Peak, Step};

/// Words of the interface.
const WORDS: [&str; 37] = [
    "blocks",
    "calls",
    "demand",
    "difference",
    "doubled_states",
    "driver",
    "flame",
    "fragmentation",
    "growth",
    "inefficient",
    "kept_gradients",
    "kernels",
    "leak",
    "leaked",
    "marks",
    "missing",
    "none",
    "other_processes",
    "out_of_memory",
    "own_limit",
    "owners",
    "peak",
    "pieces",
    "pool",
    "possible_leak",
    "ranks",
    "recording",
    "snapshots",
    "steps",
    "table",
    "time",
    "timeline",
    "watch",
    "window",
    "error",
    "warning",
    "info",
];

impl Stored for &'static str {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        let place = WORDS.iter().position(|word| word == self);
        let place = place.ok_or_else(|| io::Error::other(format!("the index does not know the word '{self}'")))?;
        (place as u8).store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        WORDS.get(u8::load(input)? as usize).copied().ok_or(Unusable("it has a word that nobody knows"))
    }
}

impl Stored for Device {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.code().store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(Device::from_code(u32::load(input)?))
    }
}

impl Stored for Pool {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        (Pool::ALL.iter().position(|pool| pool == self).unwrap_or(Pool::ALL.len()) as u8).store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Pool::ALL.get(u8::load(input)? as usize).copied().ok_or(Unusable("it has a pool that nobody knows"))
    }
}

impl Stored for Severity {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.word().store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        let word = <&str>::load(input)?;
        let all = [Severity::Error, Severity::Warning, Severity::Information];
        all.into_iter().find(|severity| severity.word() == word).ok_or(Unusable("a finding has no severity"))
    }
}

/// As text: nothing here knows what the analyses say about watched memory and about lines.
impl Stored for Value {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.to_string().store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        serde_json::from_str(&String::load(input)?).map_err(|_| Unusable("a description is not JSON"))
    }
}

/// As it is beside recordings.
impl Stored for Summary {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        serde_json::to_string(self)?.store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        serde_json::from_str(&String::load(input)?).map_err(|_| Unusable("the summary is none"))
    }
}

impl Stored for FxHashSet<u64> {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        let mut values: Vec<u64> = self.iter().copied().collect();
        values.sort_unstable();
        values.store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(Vec::<u64>::load(input)?.into_iter().collect())
    }
}

impl Stored for Texts {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        (self.known.len() as u64).store(output)?;
        self.known.iter().try_for_each(|(id, text)| {
            id.store(output)?;
            text.store(output)
        })
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(Texts::of_known(Vec::<(u32, Box<str>)>::load(input)?.into_iter().collect()))
    }
}

impl Stored for Lanes {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.threads.store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(Lanes::of_threads(Stored::load(input)?))
    }
}

impl Stored for Regions {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.0.store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(Regions(Stored::load(input)?))
    }
}

stored! {
    Identity { name, path, is_dump, process_id, rank, world_size, host, command, first_ns, last_ns }
    Model {
        first_ns, last_ns, groups, peaks, end_bytes, reserved, regions, cards, blocks, operators, ranges, kernels, calls,
        instants, steps, threads, owners, stacks, texts; besides events
    }
    Group { device, pool }
    Peak { bytes, at }
    StepSeries { time, value }
    Region { address, bytes, y }
    CardSeries { device, total_bytes, used, process }
    Events { time, reference, name, thread, device, code, details }
    Detail { address, bytes, text }
    Lane { start, end, name }
    Instants { track, at, name }
    Step { device, number, start, end }
    Stacks { frames, sites, lines }
    FrameText { function, file, line, is_python }
    Site { stack, native, line, operator }
    Line { text, frame }
    Blocks {
        address, bytes, start, end, y, allocation, site, owner, step, group, thread, flags, first_access, last_access,
        accesses; besides latest_end
    }
    Findings {
        headline, list, missing, leaks, leaked, leaked_bytes, failures, fragmentation, growth, inefficiency, watch,
        watch_changes, lines_at_peaks, summary
    }
    Finding {
        kind, severity, sentence, bytes, count, figures, line, frame, is_of_one_line, held_by, device, pool, at, details, advice,
        verdict, view, view_kind
    }
    Leak { group, site, bytes, blocks }
    FragmentationSample { at, step, reserved_bytes, used_bytes, gap_bytes, largest_gap_bytes }
    FailureText { at, device, requested_bytes, verdict, sentences }
    SiteText { line, operator, operator_place, kernel, owner, python, native, outer_frames_missing }
    Frame { function, file, line; besides origin }
}

//! What happened to device memory between two marks of a recording, also of one that still goes on.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use msmemscope_analysis::names::user_frame;
use msmemscope_analysis::{Names, RecordingNames};
use msmemscope_event::{Device, Pool, StackId};
use msmemscope_import::open_several;
use msmemscope_timeline::{BlockEvent, EventKind, TimelineEvent, TimelineSettings, run};
use pyo3::prelude::*;

use crate::analysis::reading;
use crate::exceptions::AnalysisError;

/// Points of a curve; a screen has no more columns.
const MOST_POINTS: usize = 2048;

/// Blocks and bytes of each stack that allocated in the window.
type Stacks = HashMap<StackId, (u64, u64)>;

/// The use of one pool on one device.
struct Use {
    place: (Pool, Device),
    used_bytes: u64,
    at_begin_bytes: u64,
    peak_bytes: u64,
    /// What the window's own blocks hold now, and what they held at the peak.
    stacks: Stacks,
    stacks_at_peak: Stacks,
    /// More is held than ever before, and the stacks were not copied since.
    is_at_peak: bool,
    /// Times and bytes in use, of busy pools the highest of several neighbours.
    curve: Vec<(u64, u64)>,
}

impl Use {
    fn new(place: (Pool, Device)) -> Self {
        let (stacks, stacks_at_peak) = (Stacks::new(), Stacks::new());
        Self {
            place,
            used_bytes: 0,
            at_begin_bytes: 0,
            peak_bytes: 0,
            stacks,
            stacks_at_peak,
            is_at_peak: false,
            curve: Vec::new(),
        }
    }

    fn begin(&mut self) {
        self.at_begin_bytes = self.used_bytes;
        self.peak_bytes = self.used_bytes;
        self.stacks.clear();
        self.stacks_at_peak.clear();
        self.is_at_peak = false;
        self.curve.clear();
    }

    /// Adds a point; where there are too many, every two become the higher one.
    fn draw(&mut self, timestamp_ns: u64) {
        self.curve.push((timestamp_ns, self.used_bytes));
        if self.curve.len() >= MOST_POINTS {
            let higher = |pair: &[(u64, u64)]| pair.iter().copied().max_by_key(|point| point.1).unwrap_or_default();
            self.curve = self.curve.chunks(2).map(higher).collect();
        }
    }

    /// Copies the stacks just before they hold less.
    fn keep_peak(&mut self) {
        if std::mem::take(&mut self.is_at_peak) {
            self.stacks_at_peak.clone_from(&self.stacks);
        }
    }

    fn gains(&mut self, stack: StackId, size_bytes: u64) {
        let held = self.stacks.entry(stack).or_default();
        *held = (held.0 + 1, held.1.saturating_add(size_bytes));
    }

    fn loses(&mut self, stack: StackId, size_bytes: u64) {
        self.keep_peak();
        if let Some(held) = self.stacks.get_mut(&stack) {
            *held = (held.0.saturating_sub(1), held.1.saturating_sub(size_bytes));
        }
    }
}

/// A block that was allocated in the window and not freed in it.
struct Kept {
    place: (Pool, Device),
    size_bytes: u64,
    python_stack: StackId,
}

/// Follows the events of a recording.
struct Window<'a> {
    begin: &'a str,
    end: &'a str,
    is_open: bool,
    uses: BTreeMap<(&'static str, u32), Use>,
    kept: HashMap<u64, Kept>,
}

impl Window<'_> {
    fn take(&mut self, event: TimelineEvent) {
        match event.kind {
            EventKind::Mark { message, .. } if *message == *self.begin => {
                self.is_open = true;
                self.uses.values_mut().for_each(Use::begin);
            }
            EventKind::Mark { message, .. } if *message == *self.end => self.is_open = false,
            EventKind::Malloc(block) => {
                let is_open = self.is_open;
                let use_ = self.follow(&block, event.timestamp_ns);
                if is_open && !block.shadow {
                    let place = (block.properties.pool, block.properties.device);
                    let (size_bytes, python_stack) = (block.size_bytes, event.python_stack);
                    use_.gains(python_stack, size_bytes);
                    self.kept.insert(block.allocation_id, Kept { place, size_bytes, python_stack });
                }
            }
            EventKind::Free(block) => {
                let kept = if self.is_open { self.kept.remove(&block.allocation_id) } else { None };
                let use_ = self.follow(&block, event.timestamp_ns);
                if let Some(kept) = kept {
                    use_.loses(kept.python_stack, kept.size_bytes);
                }
            }
            _ => {}
        }
    }

    fn follow(&mut self, block: &BlockEvent, timestamp_ns: u64) -> &mut Use {
        let place = (block.properties.pool, block.properties.device);
        let key = (place.0.event_type(), place.1.code());
        let use_ = self.uses.entry(key).or_insert_with(|| Use::new(place));
        use_.used_bytes = block.used_bytes;
        if self.is_open && block.used_bytes > use_.peak_bytes {
            use_.peak_bytes = block.used_bytes;
            use_.is_at_peak = true;
        }
        if self.is_open {
            use_.draw(timestamp_ns);
        }
        use_
    }
}

/// What stacks hold, by line.
struct Lines<'a> {
    names: &'a RecordingNames<'a>,
    sums: HashMap<(&'static str, String, String), (u64, u64)>,
}

impl Lines<'_> {
    fn add(&mut self, place: (Pool, Device), stack: StackId, blocks: u64, bytes: u64) {
        let frames = self.names.python_frames(stack);
        let line = user_frame(&frames).map_or(String::new(), |frame| frame.describe());
        let sum = self.sums.entry((place.0.event_type(), place.1.to_string(), line)).or_default();
        *sum = (sum.0 + blocks, sum.1 + bytes);
    }

    /// The lines, those with most bytes first.
    fn sorted(self) -> LineList {
        let lines = self.sums.into_iter().filter(|(_, (blocks, _))| *blocks > 0);
        let mut lines: LineList = lines
            .map(|((pool, device, line), (blocks, bytes))| (pool.to_owned(), device, line, blocks, bytes))
            .collect();
        lines.sort_by(|one, other| other.4.cmp(&one.4).then_with(|| one.cmp(other)));
        lines
    }
}

/// Of each pool and device: pool, device, bytes at the start, highest bytes in between.
type Peaks = Vec<(String, String, u64, u64)>;
/// Of each line: pool, device, line, blocks, bytes; most bytes first.
type LineList = Vec<(String, String, String, u64, u64)>;

/// Of each pool and device: times and bytes in use.
type Curves = Vec<(String, String, Vec<(u64, u64)>)>;
/// All about the time between two marks.
type Between = (Peaks, LineList, LineList, Curves);

/// Use of device memory between the marks `begin` and `end`; of what was allocated there, what was held at the peak and
/// what was kept, by line; and its curves.
#[pyfunction]
fn memory_between(py: Python<'_>, path: PathBuf, begin: String, end: String) -> PyResult<Between> {
    reading(py, || {
        let imported = open_several(&[&path]).map_err(|error| AnalysisError::new_err(error.to_string()))?;
        let Some(recording) = imported.recordings.first() else {
            return Err(AnalysisError::new_err(format!("{}: nothing is recorded", path.display())));
        };
        let settings = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
        let (uses, kept) = (BTreeMap::new(), HashMap::new());
        let mut window = Window { begin: &begin, end: &end, is_open: false, uses, kept };
        run(recording, &settings, &mut |event: TimelineEvent| window.take(event), &mut |_, _| {});
        let names = RecordingNames::new(recording);
        let lines = || Lines { names: &names, sums: HashMap::new() };
        let (mut at_peak, mut leftovers) = (lines(), lines());
        let (mut peaks, mut curves) = (Peaks::new(), Curves::new());
        for use_ in window.uses.values_mut() {
            use_.keep_peak();
            for (&stack, &(blocks, bytes)) in &use_.stacks_at_peak {
                at_peak.add(use_.place, stack, blocks, bytes);
            }
            let (pool, device) = use_.place;
            let (pool, device) = (pool.event_type().to_owned(), device.to_string());
            peaks.push((pool.clone(), device.clone(), use_.at_begin_bytes, use_.peak_bytes));
            curves.push((pool, device, std::mem::take(&mut use_.curve)));
        }
        for kept in window.kept.values() {
            leftovers.add(kept.place, kept.python_stack, 1, kept.size_bytes);
        }
        Ok((peaks, at_peak.sorted(), leftovers.sorted(), curves))
    })
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(memory_between, module)?)
}

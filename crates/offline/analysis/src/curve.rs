//! Memory in use over time, coarse enough for a few lines of text: the most of each piece of time, pool by pool.
//!
//! How long a recording is turns out at its end only, so pieces of time are drawn together in pairs whenever there are
//! too many of them. Memory is bounded whatever the recording.

use msmemscope_event::{Device, Pool};
use msmemscope_timeline::TimelineEvent;
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::question::{About, End, Question, Questions, View};
use crate::situation::BlockChange;
use crate::small_map::SmallMap;

/// Most pieces of time.
const MOST_PIECES: usize = 256;
/// The first pieces last this many nanoseconds, as a power of two.
const FINEST_SHIFT: u32 = 10;

/// Memory in use over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CurveReport {
    /// From the first change to the last, or to the moment of the look at a job that runs.
    pub duration_ns: u64,
    /// The curve of every pool.
    pub pools: Vec<PoolCurve>,
}

/// The curve of one pool on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolCurve {
    /// Device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Most bytes in use in each of equally long pieces of time, from the first to the last change of any pool.
    pub most_bytes: Vec<u64>,
}

#[derive(Debug, Default)]
struct Level {
    used_bytes: u64,
    most_bytes: Vec<u64>,
}

impl Level {
    /// The level holds until this piece.
    fn reach(&mut self, piece: usize) {
        if self.most_bytes.len() <= piece {
            self.most_bytes.resize(piece + 1, self.used_bytes);
        }
    }

    fn halve(&mut self) {
        let pairs = self.most_bytes.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0));
        self.most_bytes = pairs.collect();
    }
}

/// Follows all pools.
#[derive(Debug, Default)]
pub(crate) struct Curves {
    first_ns: Option<u64>,
    last_ns: u64,
    /// A piece of time lasts two to the power of this many nanoseconds.
    shift: u32,
    levels: SmallMap<(Device, Pool), Level>,
}

impl Curves {
    #[inline]
    pub(crate) fn block(&mut self, change: &BlockChange<'_>, timestamp_ns: u64) {
        let (BlockChange::Begins(_, event) | BlockChange::Ends(_, event)) = change;
        self.add(event.properties.device, event.properties.pool, timestamp_ns, event.used_bytes);
    }

    /// This many bytes are in use from now on.
    #[inline]
    pub(crate) fn add(&mut self, device: Device, pool: Pool, timestamp_ns: u64, used_bytes: u64) {
        let piece = self.piece(timestamp_ns);
        let level = self.levels.entry((device, pool));
        level.reach(piece);
        level.used_bytes = used_bytes;
        level.most_bytes[piece] = level.most_bytes[piece].max(used_bytes);
    }

    /// The piece that a moment lies in; pieces become longer if there are too many.
    #[inline]
    fn piece(&mut self, timestamp_ns: u64) -> usize {
        let first_ns = *self.first_ns.get_or_insert_with(|| {
            self.shift = FINEST_SHIFT;
            timestamp_ns
        });
        self.last_ns = self.last_ns.max(timestamp_ns);
        let since_ns = timestamp_ns.saturating_sub(first_ns);
        while since_ns >> self.shift >= MOST_PIECES as u64 {
            self.shift += 1;
            self.levels.iter_mut().for_each(|(_, level)| level.halve());
        }
        (since_ns >> self.shift) as usize
    }

    /// The curves up to the last change.
    pub(crate) fn finish(mut self) -> CurveReport {
        self.until(self.last_ns)
    }

    /// The curves up to a moment.
    pub(crate) fn until(&mut self, timestamp_ns: u64) -> CurveReport {
        if self.first_ns.is_none() {
            return CurveReport::default();
        }
        let last = self.piece(timestamp_ns);
        let duration_ns = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0));
        let pools = self.levels.iter_mut().map(|(&(device, pool), level)| {
            level.reach(last);
            PoolCurve { device, pool, most_bytes: level.most_bytes.clone() }
        });
        let mut pools: Vec<PoolCurve> = pools.collect();
        pools.sort_unstable_by_key(|curve| (curve.device, curve.pool));
        CurveReport { duration_ns, pools }
    }
}

impl Question for Curves {
    type Finding = CurveReport;

    const IS_USUAL: bool = false;

    fn ask(questions: &mut Questions) -> bool {
        questions.curve = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.curve.then(Self::default)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent, _view: View<'_>) {
        self.block(change, event.timestamp_ns);
    }

    fn finish(self, _view: View<'_>, _end: &mut End<'_>) -> Option<CurveReport> {
        Some(self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device::Npu(0);

    #[test]
    fn the_most_of_every_piece_of_time_is_kept_however_long_it_lasts() {
        for scale in [1u64, 1000, 1_000_000_000] {
            let mut curves = Curves::default();
            for step in 0..1000u64 {
                let used_bytes = if step == 500 { 9000 } else { step };
                curves.add(DEVICE, Pool::Hal, 7 + step * scale * 1024, used_bytes);
            }
            let report = curves.finish();
            let curve = &report.pools[0].most_bytes;
            assert_eq!(report.duration_ns, 999 * scale * 1024);
            assert!((MOST_PIECES / 2..=MOST_PIECES).contains(&curve.len()), "{}", curve.len());
            assert_eq!(curve.iter().max(), Some(&9000));
            assert_eq!(curve.last(), Some(&999));
            assert!(curve.iter().position(|bytes| *bytes == 9000).unwrap().abs_diff(curve.len() / 2) <= 1);
        }
    }

    #[test]
    fn a_level_holds_until_the_next_change_and_to_the_end() {
        let mut curves = Curves::default();
        curves.add(DEVICE, Pool::Hal, 0, 5);
        curves.add(DEVICE, Pool::PytorchCaching, 2048, 3);
        curves.add(DEVICE, Pool::PytorchCaching, 3072, 0);
        let report = curves.finish();
        let of = |pool| report.pools.iter().find(|curve| curve.pool == pool).unwrap().most_bytes.clone();
        assert_eq!(of(Pool::Hal), [5, 5, 5, 5]);
        // What is given up in a piece of time was there at its start.
        assert_eq!(of(Pool::PytorchCaching), [0, 0, 3, 3]);
        assert_eq!(Curves::default().finish(), CurveReport::default());
    }
}

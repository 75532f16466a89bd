//! Small curves of memory in use, one per device, in lines of text.

use msmemscope_analysis::curve::{CurveReport, PoolCurve};
use msmemscope_event::{Device, Pool};

use crate::layout::{is_plain, width};
use crate::units::{bytes, seconds};

/// Eighths of a line from the bottom up.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same for terminals that know nothing but ASCII.
const PLAIN: [char; 9] = [' ', '.', '.', ':', ':', '|', '|', '#', '#'];
const EIGHTHS: u64 = 8;
/// Lines of one curve, and of each of several.
const ROWS: usize = 3;
const ROWS_OF_SEVERAL: usize = 1;
/// Devices shown.
const MOST_DEVICES: usize = 8;
const INDENT: &str = "  ";
/// Fewer changes than this are no curve.
const FEWEST_PIECES: usize = 4;

/// The curve of the pool that matters most on every device; nothing where there is nothing to see.
pub fn curves(report: &CurveReport) -> String {
    let shown = main_pools(report);
    let rows = if shown.len() > 1 { ROWS_OF_SEVERAL } else { ROWS };
    let mut text = String::new();
    for curve in shown.iter().take(MOST_DEVICES) {
        let used = in_use(curve);
        let peak_bytes = used.iter().copied().max().unwrap_or(0);
        let duration_ns = u128::from(report.duration_ns) * used.len() as u128 / curve.most_bytes.len() as u128;
        let title = format!(
            "{} on device {} over {}, at most {}:\n",
            curve.pool.title(),
            curve.device,
            seconds(duration_ns as u64),
            bytes(peak_bytes)
        );
        text.push_str(&title);
        for line in lines(used, width() - INDENT.len(), rows) {
            text.push_str(&format!("{INDENT}{}\n", line.trim_end()));
        }
    }
    if shown.len() > MOST_DEVICES {
        text.push_str(&format!("And {} devices more.\n", shown.len() - MOST_DEVICES));
    }
    text
}

/// Pools nest: that of a framework stands for its device, or else that of the driver.
fn main_pools(report: &CurveReport) -> Vec<&PoolCurve> {
    let peak = |curve: &PoolCurve| curve.most_bytes.iter().copied().max().unwrap_or(0);
    let rank = |curve: &PoolCurve| (peak(curve) > 0, curve.pool != Pool::Hal, peak(curve));
    let mut shown: Vec<&PoolCurve> = Vec::new();
    for curve in report.pools.iter().filter(|curve| matches!(curve.device, Device::Npu(_))) {
        match shown.iter_mut().find(|known| known.device == curve.device) {
            Some(known) if rank(curve) > rank(known) => *known = curve,
            Some(_) => {}
            None => shown.push(curve),
        }
    }
    shown.retain(|curve| in_use(curve).len() >= FEWEST_PIECES);
    shown
}

/// The curve from where something is in use.
fn in_use(curve: &PoolCurve) -> &[u64] {
    let first = curve.most_bytes.iter().position(|bytes| *bytes > 0).unwrap_or(curve.most_bytes.len());
    &curve.most_bytes[first..]
}

/// A curve as lines of characters, the highest first.
pub fn lines(values: &[u64], columns: usize, rows: usize) -> Vec<String> {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let marks = if is_plain() { PLAIN } else { BLOCKS };
    let columns = columns.min(values.len());
    let heights: Vec<u64> = (0..columns)
        .map(|column| {
            let piece = &values[column * values.len() / columns..(column + 1) * values.len() / columns];
            let value = piece.iter().copied().max().unwrap_or(0);
            // Whatever is in use can be seen.
            (u128::from(value) * u128::from(EIGHTHS) * rows as u128).div_ceil(u128::from(most)) as u64
        })
        .collect();
    let mark = |height: &u64, row: u64| marks[height.saturating_sub(row * EIGHTHS).min(EIGHTHS) as usize];
    (0..rows as u64).rev().map(|row| heights.iter().map(|height| mark(height, row)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_rise_and_fall() {
        assert_eq!(lines(&[0, 1, 4, 8, 16], 5, 1), [" ▁▂▄█"]);
        assert_eq!(lines(&[0, 8, 16], 3, 2), ["  █", " ██"]);
        assert_eq!(lines(&[1, 9, 2, 3], 2, 1), ["█▃"], "the most of several pieces of time");
        assert_eq!(lines(&[0, 0], 9, 1), ["  "]);
        assert_eq!(lines(&[1, u64::MAX], 2, 1), ["▁█"]);
    }

    #[test]
    fn the_time_before_the_first_block_is_left_out() {
        let most_bytes = [vec![0; 8], vec![5; 8]].concat();
        let curve = PoolCurve { device: Device::Npu(0), pool: Pool::Hal, most_bytes };
        let text = curves(&CurveReport { duration_ns: 4_000_000_000, pools: vec![curve] });
        assert!(text.contains(" over 2.0 s, at most 5 B:\n  ████████\n"), "{text}");
    }

    #[test]
    fn one_curve_per_device_that_of_the_framework() {
        let curve = |device, pool, most: u64| PoolCurve { device, pool, most_bytes: vec![most; 8] };
        let report = CurveReport {
            duration_ns: 2_000_000_000,
            pools: vec![
                curve(Device::Host, Pool::Hal, 9),
                curve(Device::Npu(0), Pool::Hal, 9),
                curve(Device::Npu(0), Pool::PytorchCaching, 1024),
                curve(Device::Npu(1), Pool::Hal, 7),
                curve(Device::Npu(2), Pool::Hal, 0),
            ],
        };
        let title = Pool::PytorchCaching.title();
        let driver = Pool::Hal.title();
        assert_eq!(
            curves(&report),
            format!(
                "{title} on device 0 over 2.0 s, at most 1.0 KiB:\n  ████████\n{driver} on device 1 over 2.0 s, at most \
                 7 B:\n  ████████\n"
            )
        );
        assert_eq!(curves(&CurveReport::default()), "");
    }
}

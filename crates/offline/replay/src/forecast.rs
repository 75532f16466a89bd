//! Where growth leads, and what other batch sizes would need: straight lines through what was recorded.

use serde::Serialize;

use crate::requests::{Requests, StepUse};

/// Fewer steps say nothing about growth.
const FEWEST_STEPS: usize = 4;
/// The first steps build up what stays: optimizer states, caches, the pool itself.
const WARM_UP_STEPS: usize = 2;
/// Slopes below this many of their own uncertainties are noise.
const CLEAR_SLOPE: f64 = 3.0;
/// Shorter recordings without steps say nothing about growth: a job builds up what it needs.
const SHORTEST_SECONDS: f64 = 60.0;
/// This part of the time counts as building up.
const WARM_UP_PART: usize = 4;
const NANOSECONDS_PER_SECOND: f64 = 1e9;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// A line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Line {
    slope: f64,
    offset: f64,
    /// Standard error of the slope.
    slope_error: f64,
}

fn line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    if points.len() < 2 {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    if spread == 0.0 {
        return None;
    }
    let slope = points.iter().map(|point| (point.0 - mean_x) * (point.1 - mean_y)).sum::<f64>() / spread;
    let offset = mean_y - slope * mean_x;
    let residual: f64 = points.iter().map(|point| (point.1 - slope * point.0 - offset).powi(2)).sum();
    let slope_error = if points.len() > 2 { (residual / (count - 2.0) / spread).sqrt() } else { 0.0 };
    Some(Line { slope, offset, slope_error })
}

/// How memory in use grows, and when the card is full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Steps it was measured over.
    pub steps: u64,
    /// Bytes more in use at the peak of every step.
    pub bytes_per_step: f64,
    /// Standard error of it.
    pub error_bytes_per_step: f64,
    /// Seconds of a step.
    pub seconds_per_step: f64,
    /// Steps after the last recorded one until the card is full: expected, least, and most if there is a limit to it.
    pub steps_until_full: Option<[Option<u64>; 3]>,
}

/// The growth over recorded steps, unless it drowns in noise. `left_bytes` is what the card had left at the
/// last step's peak.
pub fn growth(steps: &[StepUse], left_bytes: Option<u64>) -> Option<Growth> {
    let settled = steps.get(WARM_UP_STEPS..).filter(|settled| settled.len() >= FEWEST_STEPS)?;
    // The last step may be cut off.
    let settled = &settled[..settled.len() - 1];
    let points: Vec<(f64, f64)> =
        settled.iter().map(|step| ((step.step - settled[0].step) as f64, step.peak_used_bytes as f64)).collect();
    let line = line(&points)?;
    if line.slope < 1.0 || line.slope < CLEAR_SLOPE * line.slope_error {
        return None;
    }
    let (first, last) = (settled.first()?, settled.last()?);
    let rounds = (last.step - first.step).max(1) as f64;
    let until =
        |slope: f64| left_bytes.filter(|_| slope > 0.0).map(|left_bytes| (left_bytes as f64 / slope).floor() as u64);
    let steps_until_full = left_bytes.map(|_| {
        let error = 2.0 * line.slope_error;
        [until(line.slope), until(line.slope + error), until(line.slope - error)]
    });
    Some(Growth {
        steps: settled.len() as u64,
        bytes_per_step: line.slope,
        error_bytes_per_step: line.slope_error,
        seconds_per_step: last.start_ns.saturating_sub(first.start_ns) as f64 / NANOSECONDS_PER_SECOND / rounds,
        steps_until_full,
    })
}

/// How memory in use grows in the course of time, and when the card is full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GrowthByTime {
    /// Seconds it was measured over.
    pub seconds: f64,
    /// Bytes more in use every hour.
    pub bytes_per_hour: f64,
    /// Standard error of it.
    pub error_bytes_per_hour: f64,
    /// Seconds after the recording until the card is full: expected, least, and most if there is a limit to it.
    pub seconds_until_full: Option<[Option<f64>; 3]>,
}

/// The growth in the course of time where there are too few steps to go by. It must be there in the later half as well:
/// jobs build up what they need, and then do not grow.
pub(crate) fn growth_by_time(requests: &Requests, left_bytes: Option<u64>) -> Option<GrowthByTime> {
    if requests.steps.len() >= WARM_UP_STEPS + FEWEST_STEPS {
        return None;
    }
    let (course, window_seconds) = (&requests.course, requests.course.window_ns() as f64 / NANOSECONDS_PER_SECOND);
    // The last window may not be over.
    let windows = course.peaks_bytes().split_last()?.1;
    let points: Vec<(f64, f64)> = windows
        .iter()
        .enumerate()
        .skip(windows.len() / WARM_UP_PART)
        .map(|(window, &peak_bytes)| (window as f64 * window_seconds, peak_bytes as f64))
        .collect();
    let seconds = points.len() as f64 * window_seconds;
    if windows.len() as f64 * window_seconds < SHORTEST_SECONDS {
        return None;
    }
    let is_clear = |line: &Line| line.slope > 0.0 && line.slope >= CLEAR_SLOPE * line.slope_error;
    let line_of_half = line(&points[points.len() / 2..]).filter(is_clear)?;
    let line = line(&points).filter(is_clear)?;
    if line.slope * SECONDS_PER_HOUR < 1.0 || line_of_half.slope < line.slope / 2.0 {
        return None;
    }
    let until = |slope: f64| left_bytes.filter(|_| slope > 0.0).map(|left_bytes| left_bytes as f64 / slope);
    let error = 2.0 * line.slope_error;
    Some(GrowthByTime {
        seconds,
        bytes_per_hour: line.slope * SECONDS_PER_HOUR,
        error_bytes_per_hour: line.slope_error * SECONDS_PER_HOUR,
        seconds_until_full: left_bytes
            .map(|_| [until(line.slope), until(line.slope + error), until(line.slope - error)]),
    })
}

/// What a recording with a batch size needed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchPoint {
    /// The batch size.
    pub batch: u64,
    /// What the pool and everybody else held.
    pub card_bytes: u64,
    /// What was in use at the peak, with everybody else.
    pub used_bytes: u64,
}

/// The largest batch on a card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchFit {
    /// Bytes needed without any sample.
    pub fixed_bytes: f64,
    /// Bytes more for every sample of a batch.
    pub bytes_per_sample: f64,
    /// Largest batch by what was held.
    pub largest_batch: u64,
    /// Largest batch if fragmentation is as bad as in the worst of the recordings.
    pub at_least: u64,
    /// Largest batch if nothing were lost to fragmentation: more can never do.
    pub at_most: u64,
    /// How far recordings are off the line; nothing with two of them.
    pub largest_residual_bytes: Option<f64>,
}

/// Extrapolates from recordings with different batch sizes.
///
/// # Errors
/// One line if no line can be drawn.
pub fn batch_fit(points: &[BatchPoint], card_bytes: u64) -> Result<BatchFit, String> {
    let of = |value: fn(&BatchPoint) -> u64| {
        let points: Vec<(f64, f64)> = points.iter().map(|point| (point.batch as f64, value(point) as f64)).collect();
        line(&points).ok_or("recordings of at least two different batch sizes are needed")
    };
    let (held, used) = (of(|point| point.card_bytes)?, of(|point| point.used_bytes)?);
    if held.slope <= 0.0 || used.slope <= 0.0 {
        return Err("a larger batch did not need more memory here, so no largest one can be told".to_owned());
    }
    let largest =
        |line: &Line, factor: f64| ((card_bytes as f64 / factor - line.offset) / line.slope).floor().max(0.0) as u64;
    let worst = points.iter().map(|point| point.card_bytes as f64 / point.used_bytes.max(1) as f64).fold(1.0, f64::max);
    let largest_batch = largest(&held, 1.0);
    let residual = |point: &BatchPoint| (point.card_bytes as f64 - held.slope * point.batch as f64 - held.offset).abs();
    Ok(BatchFit {
        fixed_bytes: held.offset,
        bytes_per_sample: held.slope,
        largest_batch,
        at_least: largest(&used, worst).min(largest_batch),
        at_most: largest(&used, 1.0).max(largest_batch),
        largest_residual_bytes: (points.len() > 2).then(|| points.iter().map(residual).fold(0.0, f64::max)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(used: impl Fn(u64) -> u64, count: u64) -> Vec<StepUse> {
        (1..=count)
            .map(|step| StepUse {
                step,
                first_request: 0,
                start_ns: step * 500_000_000,
                peak_used_bytes: used(step),
                least_used_bytes: 0,
            })
            .collect()
    }

    #[test]
    fn steady_growth_fills_the_card() {
        let growth = growth(&steps(|step| 1000 + 100 * step, 12), Some(5_000)).expect("grows");
        assert!((growth.bytes_per_step - 100.0).abs() < 1e-6 && (growth.seconds_per_step - 0.5).abs() < 1e-9);
        assert_eq!(growth.steps_until_full, Some([Some(50); 3]));
    }

    #[test]
    fn noise_and_warm_up_are_no_growth() {
        assert_eq!(growth(&steps(|step| if step < 3 { step } else { 100 + step % 2 }, 40), Some(1)), None);
        assert_eq!(growth(&steps(|step| step * 100, 5), Some(1)), None, "too few steps");
        assert_eq!(growth(&steps(|step| 9_000_000 - step * 100, 20), Some(1)), None, "it falls");
    }

    #[test]
    fn the_uncertainty_of_growth_is_in_the_forecast() {
        let growth = growth(&steps(|step| 1000 * step + (step * 7919 % 13) * 100, 40), Some(100_000)).expect("grows");
        let [expected, least, most] = growth.steps_until_full.expect("a card").map(|steps| steps.expect("a number"));
        assert!(least < expected && expected < most && (95..105).contains(&expected), "{least} {expected} {most}");
    }

    #[test]
    fn a_line_through_two_batches() {
        let point = |batch: u64, used: u64, held: u64| BatchPoint { batch, card_bytes: held, used_bytes: used };
        let fit = batch_fit(&[point(8, 900, 1000), point(16, 1700, 1800)], 10_000).expect("a line");
        assert_eq!((fit.largest_batch, fit.largest_residual_bytes), (98, None));
        assert!(fit.at_least <= fit.largest_batch && fit.largest_batch <= fit.at_most);
        assert!(batch_fit(&[point(8, 900, 1000), point(8, 900, 1000)], 1).is_err());
        assert!(batch_fit(&[point(8, 900, 1000), point(16, 800, 900)], 1).is_err());
        let three = [point(8, 900, 1000), point(16, 1700, 1800), point(24, 2500, 2660)];
        assert!(batch_fit(&three, 10_000).expect("a line").largest_residual_bytes.expect("three") > 1.0);
    }
}

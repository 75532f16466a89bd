//! What a question is about: a recording, one of its pools, a window of time.

use msmemscope_event::{Device, Pool};
use serde_json::{Value, json};

use crate::entry::{Entry, Progress};
use crate::findings::Findings;
use crate::model::Model;
use crate::model::filter::{BlockFilter, Filter};
use crate::model::stacks::FrameText;
use crate::server::query::Query;

use super::Problem;

/// Most pixels of a window.
pub(super) const MOST_PIXELS: u64 = 4000;

/// A question about a recording that is read.
pub(super) struct Scope<'s> {
    pub(super) origin_ns: u64,
    pub(super) entry: &'s Entry,
    pub(super) model: &'s Model,
    pub(super) query: &'s Query,
    progress: Progress,
}

impl<'s> Scope<'s> {
    pub(super) fn new(entry: &'s Entry, query: &'s Query) -> Result<Self, Problem> {
        let progress = entry.progress();
        let not_yet = || Problem::NotYet(json!({ "complete": false, "fraction": progress.fraction }));
        let model = entry.model().ok_or_else(not_yet)?;
        Ok(Self { origin_ns: entry.origin_ns, entry, model, query, progress })
    }

    pub(super) fn findings(&self) -> Option<&'s Findings> {
        self.entry.findings()
    }

    /// Adds how far things were when the question was asked.
    pub(super) fn enveloped(&self, mut value: Value) -> Value {
        value["complete"] = json!(self.progress.is_complete);
        value["fraction"] = json!(self.progress.fraction);
        value
    }

    /// A time as answers count it.
    pub(super) fn shown(&self, time: u64) -> u64 {
        time.saturating_sub(self.origin_ns)
    }

    /// A time as the model counts it.
    pub(super) fn time(&self, name: &str) -> Result<Option<u64>, Problem> {
        Ok(self.query.number(name)?.map(|time| time.saturating_add(self.origin_ns)))
    }

    /// A time that must be there.
    pub(super) fn needed_time(&self, name: &str) -> Result<u64, Problem> {
        self.time(name)?.ok_or_else(|| Problem::Bad(format!("'{name}' is missing")))
    }

    /// The window: what was asked for, else the whole recording.
    pub(super) fn window(&self) -> Result<(u64, u64), Problem> {
        let from = self.time("t0")?.unwrap_or(self.model.first_ns);
        let to = self.time("t1")?.unwrap_or(self.model.last_ns.saturating_add(1));
        if from >= to {
            return Err(Problem::Bad("'t0' must be before 't1'".to_owned()));
        }
        Ok((from, to))
    }

    pub(super) fn width(&self) -> Result<usize, Problem> {
        Ok(self.query.limited("width", 1000, (1, MOST_PIXELS))? as usize)
    }

    pub(super) fn device(&self) -> Result<Option<Device>, Problem> {
        self.query.text("device").map(parse_device).transpose()
    }

    /// The pool: what was asked for, else the main one (of the device, if one was named).
    pub(super) fn group(&self) -> Result<u16, Problem> {
        let device = self.device()?;
        let pool = self.query.text("pool").map(parse_pool).transpose()?;
        let is_meant = |group: &u16| {
            let known = self.model.groups[*group as usize];
            device.is_none_or(|device| known.device == device) && pool.is_none_or(|pool| known.pool == pool)
        };
        let main = self.model.main_group().filter(is_meant);
        let best = || {
            let all = (0..self.model.groups.len() as u16).filter(is_meant);
            all.max_by_key(|group| {
                let is_framework = self.model.groups[*group as usize].pool != Pool::Hal;
                (is_framework, self.model.peaks[*group as usize].bytes)
            })
        };
        main.or_else(best).ok_or_else(|| Problem::Missing("there is no such pool in this recording".to_owned()))
    }

    pub(super) fn filter(&self) -> Result<Filter, Problem> {
        Ok(Filter::of(self.query)?)
    }

    pub(super) fn block_filter(&self) -> Result<BlockFilter<'s>, Problem> {
        Ok(BlockFilter::new(self.model, &self.filter()?))
    }

    /// A frame as answers tell it.
    pub(super) fn frame(&self, frame: &FrameText) -> Value {
        json!({
            "function": frame.function,
            "file": frame.file,
            "line": frame.line,
            "language": if frame.is_python { "python" } else { "native" },
            "source": frame.line > 0 && !frame.file.is_empty(),
        })
    }

    /// File, line and function of a call site.
    pub(super) fn place(&self, line: u32) -> (Value, Value, Value) {
        match self.model.stacks.frame_of_line(line).filter(|frame| !frame.file.is_empty()) {
            Some(frame) => (json!(frame.file), json!(frame.line), json!(frame.function)),
            None => (Value::Null, Value::Null, Value::Null),
        }
    }
}

/// Edges of equal pieces of a window.
pub(super) fn edges(from: u64, to: u64, pieces: usize) -> Vec<u64> {
    let span = u128::from(to - from);
    (0..=pieces as u128).map(|piece| from + (span * piece / pieces as u128) as u64).collect()
}

pub(super) fn parse_device(text: &str) -> Result<Device, Problem> {
    match text {
        "cpu" => Ok(Device::Host),
        "N/A" => Ok(Device::Unknown),
        text => match text.parse() {
            Ok(id) => Ok(Device::from_id(id)),
            Err(_) => Err(Problem::Bad("'device' must be a number, 'cpu' or 'N/A'".to_owned())),
        },
    }
}

pub(super) fn parse_pool(text: &str) -> Result<Pool, Problem> {
    let found = Pool::ALL.iter().find(|pool| pool.event_type() == text).copied();
    found.ok_or_else(|| Problem::Bad("'pool' must be HAL, PTA or another event type".to_owned()))
}

/// An address as answers tell it.
pub(super) fn address(address: u64) -> String {
    format!("{address:#018x}")
}

/// An end as answers tell it: none if it never came.
pub(super) fn end(scope: &Scope<'_>, end: u64) -> Option<u64> {
    (end != crate::model::blocks::ALIVE).then(|| scope.shown(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_cut_into_equal_pieces() {
        assert_eq!(edges(10, 20, 4), [10, 12, 15, 17, 20]);
        assert_eq!(edges(0, 2, 4), [0, 0, 1, 1, 2]);
        assert_eq!(edges(5, u64::MAX, 1), [5, u64::MAX]);
    }

    #[test]
    fn devices_and_pools_are_spelled_as_in_files() {
        assert_eq!(parse_device("3").unwrap(), Device::Npu(3));
        assert_eq!(parse_device("cpu").unwrap(), Device::Host);
        assert!(parse_device("x").is_err());
        assert_eq!(parse_pool("PTA").unwrap(), Pool::PytorchCaching);
        assert!(parse_pool("pta").is_err());
    }
}

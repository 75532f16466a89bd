//! The questions of a report, under the addresses that the page uses for them, in as much detail as fits.

use serde_json::{Map, Value, json};

use crate::answers::Answers;

/// Most bytes of all answers: a report can be mailed.
const MOST_BYTES: usize = 3_500_000;
/// Findings whose moment is kept besides the peak.
const KEPT_MOMENTS: usize = 4;
/// Bars of the chart of all steps.
const STEP_BARS: &str = "150";
/// Steps per question.
const STEPS_AT_ONCE: u64 = 200;
/// Part of the active time that the page shows before and after it.
const AIR: f64 = 0.02;

/// How much of a recording is told.
struct Detail {
    /// Pixels of the curve.
    width: u64,
    series: u64,
    by: &'static [&'static str],
    /// Pools of a device: all, or only the one that the page shows first.
    has_all_pools: bool,
    /// Frames below this part of a flame graph are left out.
    smallest_frame: f64,
    steps: u64,
    /// Pixels of steps, operators and marks; none if zero.
    tracks_width: u64,
}

/// From the finest to the coarsest.
const DETAILS: [Detail; 4] = [
    Detail {
        width: 900,
        series: 12,
        by: &["owner", "site", "size", "pool"],
        has_all_pools: true,
        smallest_frame: 0.001,
        steps: 600,
        tracks_width: 900,
    },
    Detail {
        width: 600,
        series: 12,
        by: &["owner", "site", "size", "pool"],
        has_all_pools: false,
        smallest_frame: 0.002,
        steps: 400,
        tracks_width: 500,
    },
    Detail {
        width: 300,
        series: 8,
        by: &["owner", "site"],
        has_all_pools: false,
        smallest_frame: 0.005,
        steps: 200,
        tracks_width: 200,
    },
    Detail {
        width: 120,
        series: 5,
        by: &["owner"],
        has_all_pools: false,
        smallest_frame: 0.02,
        steps: 50,
        tracks_width: 0,
    },
];

/// Asks all questions in the finest detail that fits.
pub(super) fn collect(asked: &Answers) -> Map<String, Value> {
    let last = DETAILS.len() - 1;
    let fitting = DETAILS[..last].iter().find_map(|detail| {
        let mut collection = Collection::new(asked);
        collection.ask_all(detail).then_some(collection)
    });
    let collection = fitting.unwrap_or_else(|| {
        let mut collection = Collection::new(asked);
        if !collection.ask_all(&DETAILS[last]) {
            collection.say_what_is_left_out();
        }
        collection
    });
    collection.answers
}

/// Answers so far.
struct Collection<'a> {
    asked: &'a Answers,
    answers: Map<String, Value>,
    bytes: usize,
    /// Recordings whose answers are all there.
    complete_recordings: usize,
}

impl<'a> Collection<'a> {
    fn new(asked: &'a Answers) -> Self {
        Self { asked, answers: Map::new(), bytes: 0, complete_recordings: 0 }
    }

    /// Whether everything fitted.
    fn ask_all(&mut self, detail: &Detail) -> bool {
        for question in ["session", "findings", "ranks"] {
            self.keep(question, &[], &[]);
        }
        let recordings = self.answers["session"]["recordings"].as_array().cloned().unwrap_or_default();
        let findings = self.answers["findings"]["findings"].as_array().cloned().unwrap_or_default();
        for recording in worst_first(&recordings, &findings) {
            let number = recording["r"].to_string();
            let own = findings.iter().filter(|finding| finding["r"] == recording["r"]);
            self.ask_recording(recording, &number, detail);
            self.ask_moments(own.collect(), &number);
            if self.bytes > MOST_BYTES {
                return false;
            }
            self.complete_recordings += 1;
        }
        true
    }

    fn ask_recording(&mut self, recording: &Value, number: &str, detail: &Detail) {
        let window = window(recording);
        for device in recording["devices"].as_array().into_iter().flatten() {
            let name = device["device"].as_str().unwrap_or_default();
            if detail.tracks_width > 0 {
                let extent = extent(&window, detail.tracks_width);
                self.keep("tracks", &[("device", name), ("r", number)], &borrowed(&extent));
            }
            for pool in pools_of(device, detail.has_all_pools) {
                self.ask_pool(&[("device", name), ("pool", pool), ("r", number)], &window, detail);
            }
        }
        if recording["has"]["watch"] == json!(true) {
            self.keep("watch", &[("r", number)], &[]);
        }
    }

    fn ask_pool(&mut self, place: &[(&str, &str)], window: &[(&'static str, u64)], detail: &Detail) {
        let with = |more: &[(&'static str, &'static str)]| [place, more].concat();
        let mut wide = extent(window, detail.width);
        self.keep("curve", &with(&[("by", "none")]), &borrowed(&extent(window, detail.width / 2)));
        wide.push(("series", detail.series.to_string()));
        for by in detail.by {
            self.keep("curve", &with(&[("by", by)]), &borrowed(&wide));
        }
        for by in ["owner", "site", "size"] {
            self.keep("holds", &with(&[("by", by)]), &[("limit", "25")]);
        }
        self.keep("owners", place, &[]);
        self.keep("lines", place, &[]);
        let smallest = detail.smallest_frame.to_string();
        for kind in ["peak", "leaked"] {
            for invert in ["0", "1"] {
                self.keep("flame", &with(&[("kind", kind), ("invert", invert)]), &[("minimum", &smallest)]);
            }
        }
        self.keep_steps(place, detail.steps);
        self.keep("pool", place, &[]);
        self.keep("fragmentation", place, &[("width", &detail.width.to_string())]);
    }

    /// What findings speak of is not always the peak.
    fn ask_moments(&mut self, findings: Vec<&Value>, number: &str) {
        let has_moment = |finding: &&&Value| finding["t"].is_u64() && finding["pool"].is_string();
        for finding in findings.iter().filter(has_moment).take(KEPT_MOMENTS) {
            let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
            let (device, pool, t) = (text("device"), text("pool"), finding["t"].to_string());
            let place = [("device", device.as_str()), ("pool", &pool), ("r", number), ("t", &t)];
            self.keep("pool", &place, &[]);
            self.keep("owners", &place, &[]);
            for by in ["owner", "site", "size"] {
                self.keep("holds", &[&place[..], &[("by", by)]].concat(), &[("limit", "25")]);
            }
        }
    }

    fn keep_steps(&mut self, place: &[(&str, &str)], most: u64) {
        self.keep("steps/bars", place, &[("bars", STEP_BARS)]);
        let limit = STEPS_AT_ONCE.min(most).to_string();
        let mut all: Option<Value> = None;
        for offset in (0..most).step_by(STEPS_AT_ONCE as usize) {
            let extent = [("limit", limit.clone()), ("offset", offset.to_string())];
            let Some(mut answer) = self.asked.ask("steps", &query(place, &borrowed(&extent))) else { return };
            let rows = answer["rows"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let is_last = rows.len() < STEPS_AT_ONCE as usize;
            let all = all.get_or_insert_with(|| {
                answer["rows"] = json!([]);
                answer
            });
            if let Some(known) = all["rows"].as_array_mut() {
                known.extend(rows);
            }
            if is_last {
                break;
            }
        }
        if let Some(steps) = all {
            self.insert(address("steps", place), steps);
        }
    }

    /// Asks a question and keeps its answer. `extent` says how much is wanted; the page does not ask for that again.
    fn keep(&mut self, question: &str, parameters: &[(&str, &str)], extent: &[(&str, &str)]) {
        if let Some(answer) = self.asked.ask(question, &query(parameters, extent)) {
            self.insert(address(question, parameters), answer);
        }
    }

    fn insert(&mut self, address: String, answer: Value) {
        self.bytes += address.len() + answer.to_string().len();
        self.answers.insert(address, answer);
    }

    fn say_what_is_left_out(&mut self) {
        let all = self.answers["session"]["recordings"].as_array().map_or(0, Vec::len);
        let notice = format!(
            "This report shows details of {} of {all} recordings; the others are in its findings. `msmemscope view` shows \
             all of them.",
            self.complete_recordings
        );
        self.answers["session"]["notice"] = json!(notice);
    }
}

/// Recordings with problems before the others: what does not fit should be what nobody misses.
pub(super) fn worst_first<'r>(recordings: &'r [Value], findings: &[Value]) -> Vec<&'r Value> {
    let severity = |recording: &Value| {
        let own = findings.iter().filter(|finding| finding["r"] == recording["r"]);
        own.map(severity_rank).min().unwrap_or(usize::MAX)
    };
    let mut ordered: Vec<(usize, &Value)> =
        recordings.iter().map(|recording| (severity(recording), recording)).collect();
    ordered.sort_by_key(|(severity, _)| *severity);
    ordered.into_iter().map(|(_, recording)| recording).collect()
}

/// How bad a finding is, the worst first.
fn severity_rank(finding: &Value) -> usize {
    match finding["severity"].as_str() {
        Some("error") => 0,
        Some("warning") => 1,
        _ => 2,
    }
}

/// The time in which there is memory, as the page shows it.
fn window(recording: &Value) -> Vec<(&'static str, u64)> {
    let (Some(first), Some(last)) = (recording["active_t0"].as_u64(), recording["active_t1"].as_u64()) else {
        return Vec::new();
    };
    if last <= first {
        return Vec::new();
    }
    let air = ((last - first) as f64 * AIR).ceil() as u64;
    let (begin, end) = (recording["t0"].as_u64().unwrap_or(0), recording["t1"].as_u64().unwrap_or(last));
    vec![("t0", first.saturating_sub(air).max(begin)), ("t1", (last + air).min(end))]
}

fn extent(window: &[(&'static str, u64)], width: u64) -> Vec<(&'static str, String)> {
    let width = ("width", width.to_string());
    window.iter().map(|(name, time)| (*name, time.to_string())).chain([width]).collect()
}

fn borrowed<'s>(parameters: &'s [(&'static str, String)]) -> Vec<(&'s str, &'s str)> {
    parameters.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// The pools of a device; the one that the page shows first may be enough.
fn pools_of(device: &Value, all: bool) -> Vec<&str> {
    if !all {
        return main_pool(device).and_then(|pool| pool["pool"].as_str()).into_iter().collect();
    }
    device["pools"].as_array().into_iter().flatten().filter_map(|pool| pool["pool"].as_str()).collect()
}

/// The pool that stands for a device: that of the framework where there is one, as pools nest.
pub(super) fn main_pool(device: &Value) -> Option<&Value> {
    let rank =
        |pool: &&Value| (pool["is_main"] == json!(true), pool["pool"] != json!("HAL"), pool["peak_bytes"].as_u64());
    device["pools"].as_array()?.iter().max_by_key(rank)
}

fn query(parameters: &[(&str, &str)], extent: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", encoded(value));
    parameters.iter().chain(extent).map(pair).collect::<Vec<_>>().join("&")
}

/// A question as the page spells it: parameters in the order of their names.
pub(super) fn address(question: &str, parameters: &[(&str, &str)]) -> String {
    if parameters.is_empty() {
        return question.to_owned();
    }
    let mut sorted = parameters.to_vec();
    sorted.sort_unstable();
    format!("{question}?{}", query(&sorted, &[]))
}

/// As `encodeURIComponent` does it.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' => {
                encoded.push(byte as char);
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelled_as_by_the_page() {
        assert_eq!(address("session", &[]), "session");
        assert_eq!(
            address("curve", &[("r", "0"), ("device", "N/A"), ("by", "none")]),
            "curve?by=none&device=N%2FA&r=0"
        );
        assert_eq!(encoded("a&b=<c> é"), "a%26b%3D%3Cc%3E%20%C3%A9");
    }

    #[test]
    fn the_pool_of_the_framework_stands_for_a_device() {
        let device = json!({ "pools": [
            { "pool": "HAL", "peak_bytes": 9, "is_main": false },
            { "pool": "PTA", "peak_bytes": 5, "is_main": false },
        ] });
        assert_eq!(pools_of(&device, false), ["PTA"]);
        assert_eq!(pools_of(&device, true), ["HAL", "PTA"]);
        assert!(main_pool(&json!({ "pools": [] })).is_none());
    }
}

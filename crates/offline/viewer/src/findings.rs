//! What the analyses say about a recording, one entry per cause, the worst first. Sentences and advice are those of the
//! reports that people read on terminals.

use msmemscope_analysis::fleet::summary::Summary;
use msmemscope_analysis::fragmentation::PoolFragmentation;
use msmemscope_analysis::inefficient::{Finding as InefficientFinding, InefficiencyKinds};
use msmemscope_analysis::leaks::LeakGroup;
use msmemscope_analysis::moment::{LineUse, PoolMoment};
use msmemscope_analysis::names::SiteText;
use msmemscope_analysis::out_of_memory::Failure;
use msmemscope_analysis::verdict::Verdict;
use msmemscope_analysis::{Answers, Frame};
use msmemscope_event::{Device, Pool};
use msmemscope_report::causes::{Cause, CauseKind, causes};
use msmemscope_report::headline::{headline, peak_of};
use msmemscope_report::moments::short_operator;
use msmemscope_report::units::{bytes, counted};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

/// Findings of one kind that are named one by one.
const NAMED_PER_KIND: usize = 5;
/// Parts of a peak that are worth telling.
const SMALLEST_SHARE: f64 = 0.01;
/// How analyses call the moment when a pool used most.
const PEAK: &str = "peak";
/// The kind of findings that ranks may have in common.
pub(crate) const LEAK: &str = "leak";
const OUT_OF_MEMORY: &str = "out_of_memory";
/// From this part on, what a pool holds in vain is a warning ...
const MUCH_OVERHEAD: f64 = 0.2;
/// ... if it is this much: pools hold segments of 2 and 20 MiB, so that in small jobs a few are never full.
const MUCH_OVERHEAD_BYTES: u64 = 64 << 20;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Error,
    Warning,
    Information,
}

impl Severity {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Information => "info",
        }
    }
}

/// One thing worth knowing.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: &'static str,
    pub(crate) severity: Severity,
    pub(crate) sentence: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) count: Option<u64>,
    /// Further numbers of the sentence, for those who say it in another language.
    pub(crate) figures: Value,
    /// The call site in words, and its frame.
    pub(crate) line: Option<String>,
    pub(crate) frame: Option<Frame>,
    /// Whether everything was allocated at that line.
    pub(crate) is_of_one_line: bool,
    /// The variable that holds most of it.
    pub(crate) held_by: Option<String>,
    pub(crate) device: Option<Device>,
    pub(crate) pool: Option<Pool>,
    pub(crate) at: Option<u64>,
    /// Further sentences, and what to do.
    pub(crate) details: Vec<String>,
    pub(crate) advice: Vec<String>,
    /// Why memory ran out, in one word.
    pub(crate) verdict: Option<&'static str>,
    /// Where the evidence is: a view, and what it shows.
    pub(crate) view: &'static str,
    pub(crate) view_kind: Option<&'static str>,
}

impl Finding {
    fn new(kind: &'static str, severity: Severity, sentence: String, view: &'static str) -> Self {
        Self {
            kind,
            severity,
            sentence,
            bytes: None,
            count: None,
            figures: json!({}),
            line: None,
            frame: None,
            is_of_one_line: false,
            held_by: None,
            device: None,
            pool: None,
            at: None,
            details: Vec::new(),
            advice: Vec::new(),
            verdict: None,
            view,
            view_kind: None,
        }
    }

    fn about(mut self, device: Device, pool: Pool) -> Self {
        (self.device, self.pool) = (Some(device), Some(pool));
        self
    }
}

/// Blocks of one call site that leak.
#[derive(Clone, Debug)]
pub(crate) struct Leak {
    pub(crate) group: (Device, Pool),
    pub(crate) site: SiteText,
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

/// State of a pool at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentationSample {
    pub(crate) at: u64,
    pub(crate) step: u64,
    pub(crate) reserved_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) gap_bytes: Option<u64>,
    pub(crate) largest_gap_bytes: Option<u64>,
}

/// An out-of-memory failure.
#[derive(Clone, Debug)]
pub(crate) struct FailureText {
    pub(crate) at: u64,
    pub(crate) device: Device,
    pub(crate) requested_bytes: u64,
    pub(crate) verdict: &'static str,
    pub(crate) sentences: Vec<String>,
}

/// What the analyses say.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The answer in one to three sentences.
    pub(crate) headline: Vec<String>,
    pub(crate) list: Vec<Finding>,
    pub(crate) missing: Vec<String>,
    pub(crate) leaks: Vec<Leak>,
    pub(crate) leaked: FxHashSet<u64>,
    pub(crate) leaked_bytes: u64,
    pub(crate) failures: Vec<FailureText>,
    pub(crate) fragmentation: Vec<((Device, Pool), Vec<FragmentationSample>)>,
    pub(crate) growth: Vec<((Device, Pool), f64)>,
    /// Inefficiency by allocation, as bits.
    pub(crate) inefficiency: Vec<u8>,
    pub(crate) watch: Option<Value>,
    /// When watched memory changed, and by whom.
    pub(crate) watch_changes: Vec<(u64, String)>,
    /// What holds most at the peaks of pools, by line of code: the answers to the question `lines`.
    pub(crate) lines_at_peaks: Vec<((Device, Pool), Value)>,
    /// What the process is compared with others by.
    pub(crate) summary: Summary,
}

impl Findings {
    pub(crate) fn of(answers: &Answers, missing: Vec<String>, summary: Summary) -> Self {
        let mut findings = Self { headline: headline(answers), missing, summary, ..Self::default() };
        findings.list = causes(answers).into_iter().map(of_cause).collect();
        findings.take_failures(answers);
        findings.take_leaks(answers);
        findings.take_watch(answers);
        findings.take_inefficient(answers);
        findings.take_fragmentation(answers);
        findings.take_peaks(answers);
        findings.take_lines(answers);
        findings.take_missing();
        if findings.list.is_empty() {
            let sentence = "No memory was recorded.".to_owned();
            findings.list.push(Finding::new("none", Severity::Information, sentence, "table"));
        }
        findings.list.sort_by_key(|finding| finding.severity);
        findings
    }

    fn take_failures(&mut self, answers: &Answers) {
        let Some(report) = &answers.out_of_memory else { return };
        let text = |failure: &Failure| FailureText {
            at: failure.timestamp_ns,
            device: failure.device,
            requested_bytes: failure.requested_bytes,
            verdict: verdict_word(failure.verdict),
            sentences: sentences(failure),
        };
        self.failures = report.details.iter().map(text).collect();
        let decisive = self.list.iter_mut().find(|finding| finding.kind == OUT_OF_MEMORY).zip(report.decisive());
        if let Some((finding, failure)) = decisive {
            finding.verdict = Some(verdict_word(failure.verdict));
        }
    }

    fn take_leaks(&mut self, answers: &Answers) {
        let Some(report) = &answers.leaks else { return };
        self.leaked_bytes = report.leaked_bytes();
        let leak = |group: &LeakGroup| Leak {
            group: (group.device, group.pool),
            site: group.site.clone(),
            bytes: group.bytes,
            blocks: group.count,
        };
        let all = || report.leaks.iter().chain(&report.after_finalize);
        self.leaks = all().map(leak).collect();
        self.leaked = all().flat_map(|group| group.blocks.iter().map(|block| block.allocation_id)).collect();
        let growth = report.growth.iter();
        self.growth =
            growth.filter_map(|growth| Some(((growth.device, growth.pool), growth.bytes_per_step()?))).collect();
    }

    fn take_lines(&mut self, answers: &Answers) {
        let Some(report) = &answers.moments else { return };
        let peaks = report.pools.iter().filter(|pool| pool.moment == PEAK && pool.used_bytes > 0);
        self.lines_at_peaks = peaks.map(|pool| ((pool.device, pool.pool), lines(pool))).collect();
    }

    fn take_watch(&mut self, answers: &Answers) {
        let Some(report) = &answers.watch else { return };
        self.watch = serde_json::to_value(report).ok();
        for corruption in report.corruptions() {
            self.watch_changes.push((corruption.timestamp_ns, corruption.operator.clone()));
        }
    }

    fn take_inefficient(&mut self, answers: &Answers) {
        let Some(report) = &answers.inefficient else { return };
        if report.accesses == 0 {
            return;
        }
        for peak in report.peaks.iter().filter(|peak| peak.saved_share() >= SMALLEST_SHARE) {
            let sentence = format!(
                "Without early allocation and late deallocation the peak of {} on device {} would fall from {} to {} \
                 ({:.1} %).",
                peak.pool.title(),
                peak.device,
                bytes(peak.peak_bytes),
                bytes(peak.peak_if_fixed_bytes),
                peak.saved_share() * 100.0
            );
            let mut finding =
                Finding::new("inefficient", Severity::Warning, sentence, "table").about(peak.device, peak.pool);
            finding.bytes = Some(peak.peak_bytes - peak.peak_if_fixed_bytes);
            self.list.push(finding);
        }
        let lines = one_per_line(&report.findings);
        // What would not change the peak is in the table of blocks, and is worth nobody's first look.
        let is_worth_a_look = |found: &InefficientFinding| {
            let peak = report.peaks.iter().find(|peak| (peak.device, peak.pool) == (found.device, found.pool));
            peak.is_none_or(|peak| found.bytes as f64 >= peak.peak_bytes as f64 * SMALLEST_SHARE)
        };
        let named = lines.iter().filter(|(found, _)| is_worth_a_look(found)).take(NAMED_PER_KIND);
        self.list
            .extend(named.map(|(found, ways)| inefficient_finding(found, *ways > 1 && report.findings_not_listed > 0)));
        let count = usize::try_from(answers.summary.allocation_ids).unwrap_or(0) + 1;
        self.inefficiency = (0..count as u64)
            .map(|allocation| {
                let names = answers.notes.inefficiency(allocation).unwrap_or("");
                names.split(',').filter_map(InefficiencyKinds::from_name).fold(0, |bits, kind| bits | kind_bit(kind))
            })
            .collect();
    }

    fn take_fragmentation(&mut self, answers: &Answers) {
        let Some(report) = &answers.fragmentation else { return };
        for pool in &report.pools {
            let (held, needed) = (pool.at_peak_reserved.reserved_bytes, pool.at_peak_used.used_bytes);
            // Rows that do not tell all of what a pool holds tell nothing of its overhead.
            if held >= needed {
                self.list.push(overhead_finding(pool, held, needed));
            }
            let further = [&pool.at_peak_reserved, &pool.at_peak_used, &pool.most_idle, &pool.at_end];
            let mut samples: Vec<FragmentationSample> = pool
                .samples
                .iter()
                .chain(further)
                .map(|sample| FragmentationSample {
                    at: sample.timestamp_ns,
                    step: sample.step,
                    reserved_bytes: sample.reserved_bytes,
                    used_bytes: sample.used_bytes,
                    gap_bytes: sample.gaps.map(|gaps| gaps.gap_bytes),
                    largest_gap_bytes: sample.gaps.map(|gaps| gaps.largest_gap_bytes),
                })
                .collect();
            samples.sort_by_key(|sample| (sample.at, sample.gap_bytes.is_none()));
            samples.dedup_by_key(|sample| sample.at);
            self.fragmentation.push(((pool.device, pool.pool), samples));
        }
    }

    fn take_peaks(&mut self, answers: &Answers) {
        let Some(report) = &answers.owners else { return };
        let moments = answers.moments.iter().flat_map(|report| &report.pools).filter(|moment| moment.moment == PEAK);
        let moments: Vec<&PoolMoment> = moments.collect();
        for pool in report.pools.iter().filter(|pool| pool.peak_bytes > 0) {
            let moment = moments.iter().find(|moment| (moment.device, moment.pool) == (pool.device, pool.pool));
            let sentence = moment.and_then(|moment| peak_of(moment)).unwrap_or_else(|| {
                format!("Peak: {} ({} on device {}).", bytes(pool.peak_bytes), pool.pool.title(), pool.device)
            });
            let mut finding =
                Finding::new("peak", Severity::Information, sentence, "flame").about(pool.device, pool.pool);
            finding.bytes = Some(pool.peak_bytes);
            finding.at = Some(pool.peak_timestamp_ns);
            finding.view_kind = Some("peak");
            let most = moment.and_then(|moment| Some((moment, moment.lines.first()?)));
            if let Some((moment, most)) = most.filter(|(_, most)| most.site.is_known()) {
                finding.line = Some(most.site.line.clone());
                finding.frame = most.site.frame().cloned();
                finding.figures = json!({ "line_bytes": most.bytes, "step": moment.step });
            }
            self.list.push(finding);
        }
    }

    fn take_missing(&mut self) {
        if self.missing.is_empty() {
            return;
        }
        let sentence = format!("This recording is not complete: {}.", self.missing.join("; "));
        self.list.push(Finding::new("missing", Severity::Warning, sentence, "table"));
    }
}

/// What holds most in a pool, by line of code.
fn lines(pool: &PoolMoment) -> Value {
    let row = |used: &LineUse| {
        let [file, line, function] = frame_place(used.site.frame());
        json!({
            "label": used.site.line,
            "bytes": used.bytes,
            "blocks": used.blocks,
            "operators": used.operators.iter().map(|name| short_operator(name)).collect::<Vec<_>>(),
            "modules": used.modules,
            "phases": used.phases,
            "file": file,
            "line": line,
            "function": function,
        })
    };
    json!({
        "used_bytes": pool.used_bytes,
        "step": pool.step,
        "rows": pool.lines.iter().map(row).collect::<Vec<_>>(),
        "more": { "rows": pool.other_lines, "bytes": pool.other_bytes },
    })
}

/// A cause as the viewer shows it: how bad it is, and where its evidence is.
fn of_cause(cause: Cause) -> Finding {
    let (kind, severity, view) = match cause.kind {
        CauseKind::OutOfMemory => (OUT_OF_MEMORY, Severity::Error, "pool"),
        CauseKind::RecoveredOutOfMemory => (OUT_OF_MEMORY, Severity::Warning, "pool"),
        CauseKind::Corruption => ("watch", Severity::Error, "watch"),
        CauseKind::Leak => (LEAK, Severity::Error, "flame"),
        CauseKind::PossibleLeak => ("possible_leak", Severity::Warning, "table"),
        CauseKind::Growth => ("growth", Severity::Warning, "timeline"),
        CauseKind::DoubledStates => ("doubled_states", Severity::Warning, "owners"),
        CauseKind::KeptGradients => ("kept_gradients", Severity::Warning, "owners"),
        CauseKind::Pieces => ("pieces", Severity::Warning, "pool"),
    };
    Finding {
        bytes: Some(cause.bytes),
        count: cause.count,
        figures: match cause.growth {
            Some((bytes_per_step, (first, last))) => {
                json!({ "bytes_per_step": bytes_per_step, "first_step": first, "last_step": last })
            }
            None => json!({}),
        },
        line: cause.line,
        frame: cause.frame,
        is_of_one_line: cause.is_of_one_line,
        held_by: cause.held_by,
        device: cause.device,
        pool: cause.pool,
        at: cause.timestamp_ns,
        details: cause.explanation,
        advice: cause.advice,
        view_kind: (kind == LEAK).then_some("leaked"),
        ..Finding::new(kind, severity, cause.sentence, view)
    }
}

/// A line that is reached along many ways is one finding, where its most wasteful way was; and how many ways there are.
fn one_per_line(findings: &[InefficientFinding]) -> Vec<(InefficientFinding, usize)> {
    let mut lines: Vec<(InefficientFinding, usize)> = Vec::new();
    let mut positions = FxHashMap::default();
    for found in findings {
        let line = (found.kind.title(), found.device, found.pool, &found.use_line, &found.site.line);
        let position = *positions.entry(line).or_insert(lines.len());
        match lines.get_mut(position) {
            None => lines.push((found.clone(), 1)),
            Some((known, ways)) => {
                *ways += 1;
                known.count += found.count;
                known.bytes += found.bytes;
                known.largest_bytes = known.largest_bytes.max(found.largest_bytes);
            }
        }
    }
    lines
}

/// What a pool held beyond what its blocks ever needed.
fn overhead_finding(pool: &PoolFragmentation, held: u64, needed: u64) -> Finding {
    let overhead = held - needed;
    let share = overhead as f64 / held.max(1) as f64;
    let sentence = format!(
        "{} on device {} held at most {}, its blocks never needed more than {}: {} ({:.1} %) is overhead of the pool.",
        pool.pool.title(),
        pool.device,
        bytes(held),
        bytes(needed),
        bytes(overhead),
        share * 100.0
    );
    let is_much = share >= MUCH_OVERHEAD && overhead >= MUCH_OVERHEAD_BYTES;
    let severity = if is_much { Severity::Warning } else { Severity::Information };
    Finding {
        bytes: Some(overhead),
        figures: json!({ "held_bytes": held, "needed_bytes": needed }),
        at: Some(pool.at_peak_reserved.timestamp_ns),
        ..Finding::new("fragmentation", severity, sentence, "pool").about(pool.device, pool.pool)
    }
}

/// `is_part` says that there may be more blocks than are counted.
fn inefficient_finding(found: &InefficientFinding, is_part: bool) -> Finding {
    let at_least = if is_part { "at least " } else { "" };
    let used = match found.use_line.is_empty() {
        true => String::new(),
        false => format!(", used by {}", found.use_line),
    };
    let sentence = format!(
        "{}: {at_least}{} of up to {}{used}: {}",
        capitalised(found.kind.title()),
        counted(found.count, "block"),
        bytes(found.largest_bytes),
        found.site.line
    );
    Finding {
        bytes: Some(found.bytes),
        count: Some(found.count),
        line: Some(found.site.line.clone()),
        frame: found.site.frame().cloned(),
        is_of_one_line: true,
        ..Finding::new("inefficient", Severity::Warning, sentence, "table").about(found.device, found.pool)
    }
}

fn kind_bit(kind: InefficiencyKinds) -> u8 {
    let all = [InefficiencyKinds::EARLY, InefficiencyKinds::LATE, InefficiencyKinds::IDLE];
    all.iter().position(|known| *known == kind).map_or(0, |position| 1 << position)
}

/// Names of the inefficiency of a block, from its bits.
pub(crate) fn inefficiency_names(bits: u8) -> Vec<&'static str> {
    let all = [InefficiencyKinds::EARLY, InefficiencyKinds::LATE, InefficiencyKinds::IDLE];
    let chosen = all.iter().enumerate().filter(|(position, _)| bits >> position & 1 == 1);
    chosen.map(|(_, kind)| kind.attribute()).collect()
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Leak => "leak",
        Verdict::Fragmentation => "fragmentation",
        Verdict::OtherProcesses => "other_processes",
        Verdict::Demand => "demand",
        Verdict::Growth => "growth",
        Verdict::Driver => "driver",
        Verdict::OwnLimit => "own_limit",
    }
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

/// A frame as answers tell it.
pub(crate) fn frame_place(frame: Option<&Frame>) -> [Value; 3] {
    match frame.filter(|frame| !frame.file.is_empty()) {
        None => [Value::Null, Value::Null, frame.map_or(Value::Null, |frame| json!(frame.function))],
        Some(frame) => [json!(frame.file), json!(frame.line), json!(frame.function)],
    }
}

/// Why memory ran out, and what to do about it.
fn sentences(failure: &Failure) -> Vec<String> {
    let reason = msmemscope_report::verdict::reason(failure);
    reason.explanation.into_iter().chain(reason.advice).collect()
}

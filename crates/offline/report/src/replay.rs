//! What other settings and cards would have meant: computed, not measured, and said so.

use msmemscope_replay::Trial;
use msmemscope_replay::forecast::{BatchFit, BatchPoint, Growth, GrowthByTime};
use msmemscope_replay::study::{Agreement, Study};

use crate::layout::{push_whole_words, width};
use crate::table::{Align, Table};
use crate::tree::percent;
use crate::units::{bytes, count, counted};

/// Columns between the numbers of a replay and its settings.
const SETTINGS_GAP: usize = 2;
const SECONDS_PER_HOUR: f64 = 3600.0;
/// The model is trusted if it is never off by more than one of so many parts of the recorded peak.
const TRUSTED_SHARE: u64 = 100;
const NOT_TRUSTED: &str = "That is too far off to say what fits and what helps. Recordings that lack the start of the \
                           job, or that were made before streams were recorded, and jobs with pools of their own \
                           (MemPool, captured graphs) cannot be replayed exactly.";

/// All that is said about one card. `failure_line` names the line of code behind a request that could not be met.
pub fn replay(study: &Study, failure_line: &dyn Fn(&Trial) -> Option<String>) -> String {
    let mut text = String::new();
    let card = match study.card_bytes {
        Some(card_bytes) => format!(" on a card of {}", bytes(card_bytes)),
        None => String::new(),
    };
    let asked = counted(study.allocations, "block");
    let steps = match study.steps {
        0 => String::new(),
        steps => format!(" in {}", counted(steps, "step")),
    };
    let streams = match study.streams {
        0 | 1 => String::new(),
        streams => format!(" on {}", counted(streams as u64, "stream")),
    };
    // Memory snapshots of PyTorch do not say which process they are of.
    let process = match study.process_id {
        0 => String::new(),
        process_id => format!(" of process {process_id}"),
    };
    let title = format!(
        "PyTorch's pool{process} on device {}: {asked} asked for{streams}{steps}, replayed{card}. What follows is \
         computed, not measured.",
        study.device
    );
    push_whole_words(&mut text, &title, "");
    push_whole_words(&mut text, &agreement(&study.agreement, study), "");
    if study.held_back > 0 {
        let sentence = format!(
            "Freed blocks that could be used again only later, when another stream had done with them (record_stream): \
             {}. Every replay holds them back as long.",
            count(study.held_back)
        );
        push_whole_words(&mut text, &sentence, "");
    }
    let is_trusted = is_trusted(study);
    if !is_trusted {
        push_whole_words(&mut text, NOT_TRUSTED, "");
    }
    text.push('\n');
    text.push_str(&trials(study, is_trusted));
    text.push('\n');
    if is_trusted {
        push_verdicts(&mut text, study, failure_line);
    }
    forecast(study).iter().for_each(|sentence| push_whole_words(&mut text, sentence, "  "));
    text
}

/// Whether the model does what the allocator did, or something that is hardly different.
fn is_trusted(study: &Study) -> bool {
    study.agreement.events > 0
        && study.agreement.largest_difference_bytes <= study.recorded.peak_reserved_bytes / TRUSTED_SHARE
}

/// Where it runs out, what helps most, and the smallest cards.
fn push_verdicts(text: &mut String, study: &Study, failure_line: &dyn Fn(&Trial) -> Option<String>) {
    for trial in study.trials.iter().filter(|trial| !study.is_sweep() || trial.is_recorded) {
        if let Some(failure) = &trial.outcome.failure {
            let line = failure_line(trial).map_or(String::new(), |line| format!(" at {line}"));
            let step = if failure.step > 0 { format!(" in step {}", failure.step) } else { String::new() };
            let sentence = format!(
                "With {} it {}{step}{line}: {} wanted for a request of {}, {} reserved, {} of it in use.",
                settings(trial),
                if trial.may_fit() { "may run out" } else { "runs out" },
                bytes(failure.asked_bytes),
                bytes(failure.size_bytes),
                bytes(failure.reserved_bytes),
                bytes(failure.used_bytes)
            );
            push_whole_words(text, &sentence, "  ");
        }
    }
    helps(study).iter().for_each(|sentence| push_whole_words(text, sentence, "  "));
    for smallest in &study.smallest_cards {
        let sentence = format!("Smallest card with {}: {}.", named(&smallest.settings), bytes(smallest.card_bytes));
        push_whole_words(text, &sentence, "  ");
    }
    if study.trials.iter().any(is_inexact) {
        let sentence = format!(
            "Not known exactly: {} of the blocks were handed out whole, and may be up to 1 MiB larger than what was \
             asked for. To know, record with PYTORCH_NPU_ALLOC_CONF=expandable_segments:True.",
            count(study.inexact_allocations)
        );
        push_whole_words(text, &sentence, "  ");
    }
}

fn agreement(agreement: &Agreement, study: &Study) -> String {
    let settings = match study.settings_are_assumed {
        true => "whose settings were not recorded; default settings are assumed".to_owned(),
        false => format!("made with {}", named(&study.recorded_settings)),
    };
    let checked = format!("The model was checked against this recording, {settings}: ");
    if agreement.is_exact() {
        let events = counted(agreement.events, "event");
        let calls = if agreement.knows_driver_calls() { ", with as many driver calls" } else { "" };
        return format!("{checked}it reserved the same after each of {events}{calls}.");
    }
    let [recorded, replayed] = agreement.driver_calls;
    let differing = match agreement.differing {
        0 => "it reserved the same after every event".to_owned(),
        differing => format!(
            "it reserved something else after {} of {}, by up to {}",
            count(differing),
            counted(agreement.events, "event"),
            bytes(agreement.largest_difference_bytes)
        ),
    };
    if !agreement.knows_driver_calls() {
        return format!("{checked}{differing}.");
    }
    format!("{checked}{differing}; {} driver calls were recorded and {} replayed.", count(recorded), count(replayed))
}

/// Settings as a sentence names them.
fn named(settings: &str) -> String {
    match settings {
        msmemscope_replay::settings::AS_DELIVERED => "default settings".to_owned(),
        settings => settings.to_owned(),
    }
}

fn settings(trial: &Trial) -> String {
    named(&trial.settings)
}

fn trials(study: &Study, is_trusted: bool) -> String {
    let recorded = &study.recorded;
    let calls = match recorded.driver_allocations + recorded.driver_frees {
        0 => "-".to_owned(),
        calls => count(calls),
    };
    let mut rows = vec![(
        [
            bytes(recorded.peak_reserved_bytes),
            bytes(recorded.peak_used_bytes),
            String::new(),
            calls,
            if study.ran_out { "ran out".to_owned() } else { String::new() },
        ],
        "what was recorded".to_owned(),
    )];
    for trial in &study.trials {
        let outcome = &trial.outcome;
        let unused = outcome.peak_reserved_bytes - outcome.used_at_peak_bytes.min(outcome.peak_reserved_bytes);
        let numbers = [
            range(trial),
            bytes(outcome.peak_used_bytes),
            percent(unused, outcome.peak_reserved_bytes),
            count(outcome.driver_calls()),
            if is_trusted { verdict(trial, study.card_bytes).to_owned() } else { String::new() },
        ];
        rows.push((numbers, format!("{}{}", settings(trial), if trial.is_recorded { " (recorded)" } else { "" })));
    }
    let mut columns =
        vec![("reserved", Align::Right), ("used", Align::Right), ("unused", Align::Right), ("calls", Align::Right)];
    if rows.iter().any(|(numbers, _)| !numbers[4].is_empty()) {
        columns.push(("", Align::Left));
    }
    let mut table = Table::new(&columns);
    rows.iter().for_each(|(numbers, _)| table.row(numbers.iter().take(columns.len()).cloned()));
    let settings = std::iter::once("settings").chain(rows.iter().map(|(_, settings)| &**settings));
    beside_or_below(&table.render(), settings)
}

/// The lines of a table with settings behind them, or below where they are too long: they are for copying, so no option
/// is cut.
fn beside_or_below<'a>(table: &str, settings: impl Iterator<Item = &'a str>) -> String {
    let start = table.lines().map(str::len).max().unwrap_or(0) + SETTINGS_GAP;
    let room = width().saturating_sub(start);
    let mut text = String::new();
    for (line, settings) in table.lines().zip(settings) {
        let longest = settings.split_inclusive(',').map(str::len).max().unwrap_or(0);
        let pieces = broken_at_commas(settings, room.max(longest));
        let is_below = longest > room;
        let start = if is_below { width().saturating_sub(longest) } else { start };
        for (index, piece) in pieces.iter().enumerate() {
            match index {
                0 if is_below => text.push_str(&format!("{line}\n{:start$}{piece}\n", "")),
                0 => text.push_str(&format!("{line:start$}{piece}\n")),
                _ => text.push_str(&format!("{:start$}{piece}\n", "")),
            }
        }
    }
    text
}

/// Settings as lines of so many columns.
fn broken_at_commas(settings: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for option in settings.split_inclusive(',') {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.len() + option.len() <= columns => line.push_str(option),
            _ => lines.push(option.to_owned()),
        }
    }
    lines
}

/// What to write where for these settings: torch_npu refuses the limit of a process in the variable.
pub(crate) fn how_to_set(settings: &str) -> String {
    let fraction = |option: &str| option.strip_prefix("per_process_memory_fraction:").map(str::to_owned);
    let options: Vec<&str> = settings.split(',').filter(|option| fraction(option).is_none()).collect();
    let variable = format!("PYTORCH_NPU_ALLOC_CONF={}", options.join(","));
    match settings.split(',').find_map(fraction) {
        Some(fraction) => format!("{variable} and a call of torch.npu.set_per_process_memory_fraction({fraction})"),
        None => variable,
    }
}

/// Whether it depends on sizes that are not known exactly what comes of it, as far as it is shown.
fn is_inexact(trial: &Trial) -> bool {
    is_range(trial) || trial.outcome.fits() != trial.may_fit()
}

fn is_range(trial: &Trial) -> bool {
    let (most, least) = (trial.outcome.peak_reserved_bytes, trial.at_least.peak_reserved_bytes);
    least < most && bytes(least) != bytes(most)
}

/// The peak, and what it would be at least if sizes are not known exactly.
fn range(trial: &Trial) -> String {
    let (most, least) = (bytes(trial.outcome.peak_reserved_bytes), bytes(trial.at_least.peak_reserved_bytes));
    if !is_range(trial) {
        return most;
    }
    match (least.split_once(' '), most.split_once(' ')) {
        (Some((number, unit)), Some((_, same_unit))) if unit == same_unit => format!("{number}-{most}"),
        _ => format!("{least}-{most}"),
    }
}

fn verdict(trial: &Trial, card_bytes: Option<u64>) -> &'static str {
    match (&trial.outcome.failure, card_bytes) {
        (Some(_), _) if trial.may_fit() => "may fit",
        (Some(_), _) => "runs out",
        (None, Some(_)) if trial.outcome.retries > 0 => "just fits",
        (None, Some(_)) => "fits",
        (None, None) => "",
    }
}

/// What helps most, or that nothing does.
fn helps(study: &Study) -> Option<String> {
    if study.is_sweep() && study.never_fits() {
        return Some(
            "With none of these settings it runs to its end; the one that comes furthest stands first.".into(),
        );
    }
    let recorded = study.as_recorded()?;
    if let Some(first) = study.trials.first().filter(|first| !first.outcome.fits() && first.may_fit())
        && !recorded.may_fit()
    {
        return Some(format!("What may help: {}.", how_to_set(first.spelling())));
    }
    let best = study.best()?;
    let spelled = how_to_set(best.spelling());
    if best.outcome.fits() != recorded.outcome.fits() {
        let card = study.card_bytes.map_or(String::new(), |card_bytes| format!(" of {}", bytes(card_bytes)));
        let peak = bytes(best.outcome.peak_reserved_bytes);
        return Some(format!("What helps most: with {spelled} it would have fitted: peak reserved {peak}{card}."));
    }
    let saved = recorded.outcome.peak_reserved_bytes.saturating_sub(best.outcome.peak_reserved_bytes);
    let part = percent(saved, recorded.outcome.peak_reserved_bytes);
    Some(format!("What helps most: {spelled}, {} less reserved ({part}).", bytes(saved)))
}

fn forecast(study: &Study) -> Vec<String> {
    if let Some(growth) = &study.growth_by_time {
        return forecast_by_time(growth, study.card_bytes);
    }
    let Some(growth) = &study.growth else { return Vec::new() };
    let mut sentences = vec![format!(
        "Memory in use grows by {} per step ({} steps looked at).",
        bytes(growth.bytes_per_step.round() as u64),
        count(growth.steps)
    )];
    sentences.extend(until_full(growth, study.card_bytes));
    sentences
}

fn until_full(growth: &Growth, card_bytes: Option<u64>) -> Option<String> {
    let [expected, least, most] = growth.steps_until_full?;
    let (expected, card_bytes) = (expected?, card_bytes?);
    let time = |steps: u64| duration(steps as f64 * growth.seconds_per_step);
    let range = match (least, most) {
        (Some(least), Some(most)) if least != most => format!(" (between {} and {})", count(least), count(most)),
        (Some(least), None) => format!(" (at least {})", count(least)),
        _ => String::new(),
    };
    Some(format!(
        "At this growth the card of {} is full after {} more{range}, in {}.",
        bytes(card_bytes),
        counted(expected, "step"),
        time(expected)
    ))
}

fn forecast_by_time(growth: &GrowthByTime, card_bytes: Option<u64>) -> Vec<String> {
    let mut sentences = vec![format!(
        "Memory in use grows by {} per hour ({} looked at; there are too few steps to go by).",
        bytes(growth.bytes_per_hour.round() as u64),
        duration(growth.seconds)
    )];
    if let (Some([Some(expected), least, most]), Some(card_bytes)) = (growth.seconds_until_full, card_bytes) {
        let range = match (least, most) {
            (Some(least), Some(most)) if duration(least) != duration(most) => {
                format!(" (between {} and {})", duration(least), duration(most))
            }
            (Some(least), None) => format!(" (at least {})", duration(least)),
            _ => String::new(),
        };
        let full =
            format!("At this growth the card of {} is full in {}{range}.", bytes(card_bytes), duration(expected));
        sentences.push(full);
    }
    sentences
}

fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 2.0 * SECONDS_PER_HOUR => format!("{:.0} minutes", seconds / 60.0),
        seconds if seconds < 72.0 * SECONDS_PER_HOUR => format!("{:.1} hours", seconds / SECONDS_PER_HOUR),
        seconds => format!("{:.0} days", seconds / 24.0 / SECONDS_PER_HOUR),
    }
}

/// The largest batch on a card.
pub fn batch(points: &[BatchPoint], fit: &BatchFit, card_bytes: u64) -> String {
    let mut table = Table::new(&[("batch", Align::Right), ("on the card", Align::Right), ("used", Align::Right)]);
    for point in points {
        table.row([count(point.batch), bytes(point.card_bytes), bytes(point.used_bytes)]);
    }
    let mut text = table.render();
    let range = match (fit.at_least, fit.at_most) {
        (least, most) if least == most => String::new(),
        (least, most) => format!(", between {} and {} depending on fragmentation", count(least), count(most)),
    };
    let certainty = match fit.largest_residual_bytes {
        Some(residual) => {
            format!("The recordings are up to {} off the line.", bytes(residual.round() as u64))
        }
        None => "Two recordings always lie on a line: a third would show whether the job's need is one.".to_owned(),
    };
    let sentence = format!(
        "Largest batch on a card of {}: {}{range}. Computed: {} whatever the batch, and {} for each sample. {certainty}",
        bytes(card_bytes),
        count(fit.largest_batch),
        bytes(fit.fixed_bytes.max(0.0).round() as u64),
        bytes(fit.bytes_per_sample.round() as u64),
    );
    push_whole_words(&mut text, &sentence, "  ");
    text
}

#[cfg(test)]
mod tests {
    use msmemscope_event::Device;
    use msmemscope_replay::requests::Recorded;
    use msmemscope_replay::study::SmallestCard;
    use msmemscope_replay::{Failure, Outcome};

    use super::*;

    fn text(largest_difference_bytes: u64) -> String {
        text_of(Outcome { peak_reserved_bytes: 64 << 30, ..Outcome::default() }, largest_difference_bytes)
    }

    fn text_of(outcome: Outcome, largest_difference_bytes: u64) -> String {
        let trial = Trial { settings: "gc:1".to_owned(), is_recorded: true, outcome, at_least: Outcome::default() };
        let study = Study {
            process_id: 7,
            device: Device::Npu(0),
            allocations: 9,
            inexact_allocations: 0,
            streams: 1,
            held_back: 0,
            steps: 0,
            recorded_settings: "gc:1".to_owned(),
            settings_are_assumed: false,
            recorded: Recorded { peak_reserved_bytes: 100 << 20, ..Recorded::default() },
            ran_out: false,
            agreement: Agreement { events: 9, differing: 3, largest_difference_bytes, ..Agreement::default() },
            card_bytes: Some(64 << 30),
            trials: vec![trial],
            smallest_cards: vec![SmallestCard { settings: "gc:1".to_owned(), card_bytes: 1 << 30 }],
            growth: None,
            growth_by_time: None,
        };
        replay(&study, &|_| None)
    }

    #[test]
    fn settings_can_be_copied_and_start() {
        let long = "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9";
        assert_eq!(
            how_to_set(long),
            "PYTORCH_NPU_ALLOC_CONF=garbage_collection_threshold:0.6 and a call of \
             torch.npu.set_per_process_memory_fraction(0.9)"
        );
        assert_eq!(how_to_set("expandable_segments:True"), "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True");
        let settings = format!("{long},roundup_power2_divisions:[1:2,2:4,4:8,8:16,16:2,32:4]");
        let lines = broken_at_commas(&settings, 40);
        assert_eq!(lines.concat(), settings);
        assert!(lines.iter().all(|line| line.len() <= 40), "{lines:?}");
        let table = format!("  reserved\n  {}\n", "1".repeat(45));
        assert_eq!(
            beside_or_below(
                &table,
                ["settings", "expandable_segments:True,per_process_memory_fraction:0.95"].into_iter()
            ),
            format!(
                "  reserved{0}settings\n  {1}\n{2}expandable_segments:True,\n{2}per_process_memory_fraction:0.95\n",
                " ".repeat(39),
                "1".repeat(45),
                " ".repeat(48)
            ),
            "below and whole, and no wider than 80 columns"
        );
        let mut text = String::new();
        push_whole_words(&mut text, &format!("Smallest card with {settings}: 1 GiB."), "  ");
        assert_eq!(text, format!("  Smallest card with\n  {settings}:\n  1 GiB.\n"));
    }

    #[test]
    fn what_depends_on_sizes_that_are_not_known_is_said() {
        let failure = Failure {
            changes_before: 2,
            allocations_before: 2,
            size_bytes: 5 << 20,
            asked_bytes: 20 << 20,
            reserved_bytes: 60 << 20,
            used_bytes: 50 << 20,
            step: 3,
        };
        let said = text_of(Outcome { failure: Some(failure), ..Outcome::default() }, 0);
        assert!(said.contains("  may fit  gc:1 (recorded)\n"), "{said}");
        assert!(said.contains("With gc:1 it may run out in step 3: 20.0 MiB wanted"), "{said}");
        assert!(said.contains("Not known exactly: 0 of the blocks"), "{said}");
        let exact = text_of(Outcome::default(), 0);
        assert!(!exact.contains("Not known exactly") && exact.contains("  fits  gc:1 (recorded)\n"), "{exact}");
    }

    #[test]
    fn a_model_that_is_far_off_gives_no_verdicts() {
        let verdicts = |text: &str| text.contains("fits  ") || text.contains("Smallest card");
        assert!(verdicts(&text(1 << 20)), "{}", text(1 << 20));
        let far_off = text((1 << 20) + 1);
        assert!(!verdicts(&far_off) && far_off.contains("too far off"), "{far_off}");
    }
}

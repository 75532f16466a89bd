//! Many processes of a job in words: who is different and why, what leaks everywhere, who ran out of memory first, and
//! the matrix of ranks.

use msmemscope_analysis::fleet::job::{FleetSite, GroupUse, JobReport, Outlier, RankRow};
use msmemscope_analysis::fleet::outliers::{Difference, Measure};
use msmemscope_analysis::fleet::summary::RecordingState;
use msmemscope_analysis::fleet::{FleetReport, SkipReason, Skipped};
use msmemscope_analysis::names::NO_STACK;
use serde_json::{Value, json};

use crate::curve::lines;
use crate::layout::{near, push_wrapped, width};
use crate::shell::quoted_path;
use crate::table::{Align, Table};
use crate::units::{bytes, count, counted, number_ranges, seconds};

/// Rows of the matrix shown; of more, those that are named and a few that stand for the others.
const MOST_ROWS: usize = 32;
/// Sentences about outliers.
const MOST_OUTLIERS: usize = 10;
/// Call sites listed.
const MOST_SITES: usize = 10;
/// Hosts with a curve.
const MOST_HOSTS: usize = 8;
/// Things left out that are named one by one, of each kind.
const MOST_SKIPPED: usize = 5;
/// Stages and groups listed.
const MOST_GROUPS: usize = 16;
const INDENT: &str = "  ";
/// Stages are called unbalanced from this ratio on, in percent.
const UNBALANCED_PERCENT: u64 = 110;

/// The report.
pub fn fleet(report: &FleetReport) -> String {
    let mut text = String::new();
    for job in &report.jobs {
        text.push_str(&job_text(job));
        text.push('\n');
    }
    if report.jobs.is_empty() {
        text.push_str("No summary can be used.\n\n");
    }
    text.push_str(&skipped(&report.skipped));
    text
}

/// The report for programs: its data, with the sentences about outliers beside them.
pub fn json(report: &FleetReport) -> Value {
    let mut value = json!(report);
    for (index, job) in report.jobs.iter().enumerate() {
        for (number, outlier) in job.outliers.iter().enumerate() {
            value["jobs"][index]["outliers"][number]["sentence"] = json!(outlier_sentence(job, outlier));
            value["jobs"][index]["outliers"][number]["rank"] = json!(job.matrix[outlier.row].rank);
        }
    }
    value
}

fn job_text(job: &JobReport) -> String {
    let mut text = String::new();
    let heading = format!("{}: {}", heading(job), if job.command.is_empty() { "(no command)" } else { &job.command });
    push_wrapped(&mut text, &heading, "");
    text.push('\n');
    for sentence in sentences(job, "--json names them all") {
        push_wrapped(&mut text, &sentence, "");
    }
    text.push_str(&format!("\n{}", matrix(job)));
    let (growing, kept): (Vec<&FleetSite>, Vec<&FleetSite>) = job.leaks.iter().partition(|site| site.is_growing);
    for (title, sites) in [
        ("Call sites that hold more with every step, over all ranks:", growing),
        ("Call sites whose blocks were never given back, over all ranks:", kept),
        ("Call sites that held most at the peaks, over all ranks:", job.call_sites_at_peak.iter().collect()),
    ] {
        if !sites.is_empty() {
            text.push_str(&format!("\n{title}\n{}", site_table(&sites, job)));
        }
    }
    for (title, groups) in
        [("Stages of the pipeline:", &job.stages), ("Groups that share tensors:", &job.tensor_groups)]
    {
        if !groups.is_empty() {
            text.push_str(&format!("\n{title}\n{}", group_table(groups)));
        }
    }
    text.push_str(&curves(job));
    text
}

/// Ranks, or processes without one.
fn ranks(job: &JobReport) -> u64 {
    job.processes - job.helpers
}

/// What a job was, in a few words.
pub fn heading(job: &JobReport) -> String {
    let ranks = match job.world_size {
        Some(size) if u64::from(size) == ranks(job) => counted(ranks(job), "rank"),
        Some(size) => format!("{} of {} ranks", count(ranks(job)), count(u64::from(size))),
        None => counted(ranks(job), "process"),
    };
    let ranks = match job.helpers {
        0 => ranks,
        helpers => format!("{ranks} with {}", counted(helpers, "helper process")),
    };
    let name = job.id.as_ref().map_or_else(|| "Job".to_owned(), |id| format!("Job {id}"));
    format!("{name}, {ranks} on {}, {}", counted(job.host_count, "host"), seconds(job.duration_ns))
}

/// What is worth knowing, what matters most first. Of many outliers `all_of_them` says where the others are named.
pub fn sentences(job: &JobReport, all_of_them: &str) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(ran_out(job));
    for outlier in job.outliers.iter().take(MOST_OUTLIERS) {
        said.push(outlier_sentence(job, outlier));
    }
    if job.outliers.len() > MOST_OUTLIERS {
        let more = job.outliers.len() - MOST_OUTLIERS;
        said.push(format!("{} more are different: {all_of_them}.", counted(more as u64, "rank")));
    }
    said.extend(job.leaks.first().map(|site| leak(site, job)));
    said.extend(imbalance("Pipeline stage", &job.stages));
    said.extend(within_groups(&job.tensor_groups));
    if let Some(most) = job.most_bytes.iter().max().filter(|most| **most > 0) {
        said.push(format!("All together held {} at most.", bytes(*most)));
    }
    if !job.missing_ranks.is_empty() {
        let ranks = number_ranges(&job.missing_ranks);
        let noun = if job.missing_ranks.len() == 1 { "rank" } else { "ranks" };
        said.push(format!("Missing: {noun} {ranks} of {}.", job.world_size.unwrap_or_default()));
    }
    let cut_off = job.matrix.iter().filter(|row| row.state == RecordingState::CutOff);
    let cut_off: Vec<String> = cut_off.map(name).collect();
    if !cut_off.is_empty() {
        said.push(format!("Killed, or crashed: {}.", some_of(&cut_off)));
    }
    let lost: u64 = job.matrix.iter().filter(|row| !row.is_one_of_several).map(|row| row.lost_events).sum();
    if lost > 0 {
        let ranks: Vec<String> = job.matrix.iter().filter(|row| row.lost_events > 0).map(name).collect();
        said.push(format!("{} lost while recording, of {}.", counted(lost, "event"), some_of(&ranks)));
    }
    if job.outliers.is_empty() && job.matrix.len() > 2 {
        said.push("No rank differs much from the others.".to_owned());
    }
    said
}

fn name(row: &RankRow) -> String {
    match row.rank {
        Some(rank) if row.is_helper => format!("process {}, helper of rank {rank}", row.process_id),
        Some(rank) => format!("rank {rank}"),
        None => format!("process {}", row.process_id),
    }
}

fn some_of(names: &[String]) -> String {
    match names.len() {
        0..=6 => names.join(", "),
        many => format!("{} and {} more", names[..5].join(", "), many - 5),
    }
}

/// Why a rank is called different.
pub fn outlier_sentence(job: &JobReport, outlier: &Outlier) -> String {
    let row = &job.matrix[outlier.row];
    let mut place = vec![row.host.clone()];
    if !row.device.is_empty() {
        place.push(format!("device {}", row.device));
    }
    place.retain(|part| !part.is_empty());
    let reasons: Vec<String> = outlier.differences.iter().map(difference).collect();
    let first = &outlier.differences[0];
    let noun = if row.rank.is_some() { "rank" } else { "process" };
    let others = match (first.equal, first.among - 1) {
        (equal, others) if equal == others => format!("the other {others} {noun}s are exactly equal"),
        (equal, others) if equal > others / 2 => format!("{equal} of the other {others} are exactly equal"),
        (_, others) => format!("compared with {others} others"),
    };
    let because = outlier.because_of.as_ref().map_or_else(String::new, |cause| {
        let verb = if cause.is_leak { "leaks there" } else { "is held there at the peak" };
        let median = match cause.median_bytes {
            0 => "nothing".to_owned(),
            median => bytes(median),
        };
        let from = origin(&cause.line, "Allocated at", "From a line");
        format!(" {from}: {} {verb}, {median} on a usual {noun}.", bytes(cause.bytes))
    });
    format!("Outlier: {} ({}) {}; {others}.{because}", name(row), place.join(", "), reasons.join(", and "))
}

fn difference(difference: &Difference) -> String {
    let Difference { measure, value, median, .. } = *difference;
    let amount = |number: f64| bytes(number.max(0.0) as u64);
    let signed = |number: f64| if number < 0.0 { format!("-{}", bytes(-number as u64)) } else { amount(number) };
    let ratio = match median > 0.0 && value > 0.0 {
        true if value >= median => format!(", {:.2} times the median of ", value / median),
        true => format!(", only {:.2} times the median of ", value / median),
        false => ", where the median is ".to_owned(),
    };
    match measure {
        Measure::Growth => {
            format!("grows by {} with every step, where the median is {}", signed(value), signed(median))
        }
        Measure::Peak => format!("peaks at {}{ratio}{}", amount(value), amount(median)),
        Measure::End => format!("still holds {} at the end{ratio}{}", amount(value), amount(median)),
        Measure::Unused => format!("reserves {} more than it uses{ratio}{}", amount(value), amount(median)),
        Measure::Allocations => {
            format!("allocates {}{ratio}{}", counted(value as u64, "block"), count(median as u64))
        }
        Measure::Steps => {
            format!("made {}, where the median is {}", counted(value as u64, "step"), count(median as u64))
        }
    }
}

fn ran_out(job: &JobReport) -> Vec<String> {
    let Some(first) = job.out_of_memory.first() else { return Vec::new() };
    let name = |rank: Option<u32>, process_id: u32| {
        rank.map_or_else(|| format!("process {process_id}"), |rank| format!("rank {rank}"))
    };
    let failure = &first.failure;
    let when = seconds(failure.first_ns.saturating_sub(job.start_ns));
    let mut said = format!(
        "Out of memory: {} ran out first, {when} after the start, on device {} of {}",
        name(first.rank, first.process_id),
        failure.device,
        first.host
    );
    if failure.step > 0 {
        said.push_str(&format!(" in step {}", failure.step));
    }
    if failure.requested_bytes > 0 {
        said.push_str(&format!(", asking for {}", bytes(failure.requested_bytes)));
    }
    if !failure.line.is_empty() {
        said.push_str(&format!(" at {}", near(&failure.line)));
    }
    if failure.recovered {
        said.push_str("; it got over it");
    }
    said.push('.');
    let then: Vec<String> = job.out_of_memory[1..].iter().map(|next| name(next.rank, next.process_id)).collect();
    if !then.is_empty() {
        said.push_str(&format!(" Then {}.", some_of(&then)));
    }
    vec![said]
}

fn on_ranks(site: &FleetSite, job: &JobReport) -> String {
    match site.processes == ranks(job) {
        true if site.ranks.is_empty() => "every process".to_owned(),
        true => "every rank".to_owned(),
        false if site.ranks.is_empty() => format!("{} of {} processes", count(site.processes), count(ranks(job))),
        false if site.ranks.len() == 1 => format!("rank {} only", site.ranks[0]),
        false => format!("{} of {} ranks", count(site.processes), count(ranks(job))),
    }
}

/// Words for the line that allocates: with `at` before it, or with `unknown` where nobody has recorded it.
fn origin(line: &str, at: &str, unknown: &str) -> String {
    match line {
        NO_STACK => format!("{unknown} that was not recorded (--call-stack=python,c names it)"),
        line => format!("{at} {}", near(line)),
    }
}

fn leak(site: &FleetSite, job: &JobReport) -> String {
    let held = if site.held_by.is_empty() { String::new() } else { format!(" Held by {}.", site.held_by) };
    if !site.is_growing {
        return format!(
            "Never given back on {}: {} of all ranks together, {}.{held}",
            on_ranks(site, job),
            bytes(site.bytes),
            origin(&site.line, "allocated at", "from a line")
        );
    }
    format!(
        "Leak on {}: {} more with every step of all ranks together, {} by now, {}.{held}",
        on_ranks(site, job),
        bytes(site.bytes_per_step),
        bytes(site.bytes),
        origin(&site.line, "allocated at", "from a line")
    )
}

fn imbalance(noun: &str, groups: &[GroupUse]) -> Option<String> {
    let most = groups.iter().max_by_key(|group| group.median_peak_bytes)?;
    let least = groups.iter().min_by_key(|group| group.median_peak_bytes)?;
    let (high, low) = (most.median_peak_bytes, least.median_peak_bytes);
    let lower = noun.to_lowercase();
    Some(match high.saturating_mul(100) >= low.saturating_mul(UNBALANCED_PERCENT) && high > low {
        true => format!(
            "{noun} {} (ranks {}) peaks at {}, {:.2} times {lower} {} with {}: moving layers from one to the other \
             would make room.",
            most.number,
            number_ranges(&most.ranks),
            bytes(high),
            high as f64 / low.max(1) as f64,
            least.number,
            bytes(low)
        ),
        false => format!("{}s are balanced: {} to {}.", noun, bytes(low), bytes(high)),
    })
}

/// Ranks that share tensors should hold the same.
fn within_groups(groups: &[GroupUse]) -> Option<String> {
    let spread = |group: &&GroupUse| group.most_peak_bytes - group.least_peak_bytes;
    let widest = groups.iter().max_by_key(spread)?;
    let (high, low) = (widest.most_peak_bytes, widest.least_peak_bytes);
    (high.saturating_mul(100) >= low.saturating_mul(UNBALANCED_PERCENT) && high > low).then(|| {
        format!(
            "Ranks {} share tensors and should hold the same, but peak at {} to {}.",
            number_ranges(&widest.ranks),
            bytes(low),
            bytes(high)
        )
    })
}

fn matrix(job: &JobReport) -> String {
    let columns = [
        ("rank", Align::Left),
        ("host", Align::Minor),
        ("device", Align::Right),
        ("peak", Align::Right),
        ("per step", Align::Right),
        ("reserved-used", Align::Right),
        ("at end", Align::Right),
        ("steps", Align::Right),
        ("out of memory", Align::Minor),
    ];
    let mut table = Table::new(&columns);
    let outliers: Vec<usize> = job.outliers.iter().map(|outlier| outlier.row).collect();
    let shown = shown_rows(job, &outliers);
    for &(index, label) in &shown {
        let row = &job.matrix[index];
        let mark = if outliers.contains(&index) { " *" } else { "" };
        let growth = row.growth_bytes_per_step.map_or_else(String::new, |growth| match growth < 0.0 {
            true => format!("-{}", bytes(-growth as u64)),
            false => bytes(growth as u64),
        });
        let rank = match row.rank {
            Some(rank) if row.is_helper => format!("helper of rank {rank}"),
            Some(rank) => rank.to_string(),
            None => format!("process {}", row.process_id),
        };
        table.row([
            format!("{rank}{mark}{label}"),
            row.host.clone(),
            row.device.clone(),
            bytes(row.peak_bytes),
            growth,
            bytes(row.unused_bytes),
            bytes(row.end_bytes),
            count(row.steps),
            if row.ran_out { "yes".to_owned() } else { String::new() },
        ]);
    }
    let mut text = table.render();
    if shown.len() < job.matrix.len() {
        text.push_str(&format!(
            "{INDENT}{} of {} rows; --json has all of them.\n",
            count(shown.len() as u64),
            count(job.matrix.len() as u64)
        ));
    }
    if shown.iter().any(|(index, _)| outliers.contains(index)) {
        text.push_str(&format!("{INDENT}* named above\n"));
    }
    text
}

/// All rows, or those that are named and those with the least, the median and the largest peak.
fn shown_rows(job: &JobReport, outliers: &[usize]) -> Vec<(usize, &'static str)> {
    let rows = job.matrix.len();
    if rows <= MOST_ROWS {
        return (0..rows).map(|row| (row, "")).collect();
    }
    let mut by_peak: Vec<usize> = (0..rows).collect();
    by_peak.sort_by_key(|&row| job.matrix[row].peak_bytes);
    let mut shown = vec![(by_peak[0], " (least)"), (by_peak[rows / 2], " (median)"), (by_peak[rows - 1], " (most)")];
    for &row in outliers.iter().take(MOST_OUTLIERS) {
        if !shown.iter().any(|(known, _)| *known == row) {
            shown.push((row, ""));
        }
    }
    shown.sort_by_key(|(row, _)| *row);
    shown
}

fn site_table(sites: &[&FleetSite], job: &JobReport) -> String {
    let columns = [
        ("on", Align::Left),
        ("in all", Align::Right),
        ("most on one", Align::Right),
        ("pool", Align::Minor),
        ("allocated at", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for site in sites.iter().take(MOST_SITES) {
        let most = match site.most_on {
            Some(rank) if site.processes > 1 => format!("{} (rank {rank})", bytes(site.most_bytes)),
            _ => bytes(site.most_bytes),
        };
        table.row([on_ranks(site, job), bytes(site.bytes), most, site.pool.clone(), near(&site.line).to_owned()]);
    }
    let mut text = table.render();
    if sites.len() > MOST_SITES {
        text.push_str(&format!("{INDENT}{} more with --json\n", count((sites.len() - MOST_SITES) as u64)));
    }
    text
}

fn group_table(groups: &[GroupUse]) -> String {
    let columns = [
        ("number", Align::Left),
        ("ranks", Align::Left),
        ("median peak", Align::Right),
        ("least", Align::Right),
        ("most", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for group in groups.iter().take(MOST_GROUPS) {
        table.row([
            group.number.to_string(),
            number_ranges(&group.ranks),
            bytes(group.median_peak_bytes),
            bytes(group.least_peak_bytes),
            bytes(group.most_peak_bytes),
        ]);
    }
    table.render()
}

fn curves(job: &JobReport) -> String {
    let mut text = String::new();
    let mut hosts: Vec<_> = job.hosts.iter().filter(|host| host.most_bytes.iter().any(|bytes| *bytes > 0)).collect();
    if hosts.is_empty() {
        return text;
    }
    hosts.sort_by_key(|host| std::cmp::Reverse(host.most_bytes.iter().copied().max()));
    text.push_str(&format!("\nMemory in use by host over {}:\n", seconds(job.duration_ns)));
    for host in hosts.iter().take(MOST_HOSTS) {
        let most = host.most_bytes.iter().copied().max().unwrap_or(0);
        let name = if host.host.is_empty() { "(host not recorded)" } else { &host.host };
        text.push_str(&format!("{INDENT}{name}, {}, at most {}\n", counted(host.processes, "process"), bytes(most)));
        for line in lines(&host.most_bytes, width() - INDENT.len(), 1) {
            text.push_str(&format!("{INDENT}{}\n", line.trim_end()));
        }
    }
    if hosts.len() > MOST_HOSTS {
        text.push_str(&format!("{INDENT}And {} more.\n", counted((hosts.len() - MOST_HOSTS) as u64, "host")));
    }
    text
}

/// What was left out: how many of each kind, and the first ones by name.
pub fn skipped(skipped: &[Skipped]) -> String {
    let mut text = String::new();
    let reasons = [
        SkipReason::Damaged,
        SkipReason::OtherVersion,
        SkipReason::Partial,
        SkipReason::NoSummary,
        SkipReason::Duplicate,
        SkipReason::EarlierRun,
    ];
    for reason in reasons {
        let of_kind: Vec<&Skipped> = skipped.iter().filter(|one| one.reason == reason).collect();
        if of_kind.is_empty() {
            continue;
        }
        let number = of_kind.len() as u64;
        let title = match reason {
            SkipReason::Damaged => format!("{} skipped: damaged", counted(number, "summary")),
            SkipReason::OtherVersion => format!("{} skipped: of another version", counted(number, "summary")),
            SkipReason::Partial => format!(
                "{} skipped: written while the process ran; 'msmemscope finish' writes it anew",
                counted(number, "partial summary")
            ),
            SkipReason::NoSummary => {
                format!("{} skipped: no summary; 'msmemscope finish' writes it", counted(number, "recording"))
            }
            SkipReason::Duplicate => format!("{} skipped: duplicates", counted(number, "summary")),
            SkipReason::EarlierRun => format!("{} skipped: earlier runs of ranks", counted(number, "summary")),
        };
        text.push_str(&format!("{title}\n"));
        for one in of_kind.iter().take(MOST_SKIPPED) {
            let detail = if one.detail.is_empty() { String::new() } else { format!(": {}", one.detail) };
            text.push_str(&format!("{INDENT}{}{detail}\n", quoted_path(&one.path)));
        }
        if of_kind.len() > MOST_SKIPPED {
            text.push_str(&format!("{INDENT}and {} more\n", of_kind.len() - MOST_SKIPPED));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_given_back_without_steps_is_not_said_to_grow() {
        let site = |is_growing: bool, line: &str| FleetSite {
            pool: "HAL".to_owned(),
            line: line.to_owned(),
            processes: 1,
            ranks: vec![3],
            bytes: 20 << 20,
            most_bytes: 20 << 20,
            most_on: Some(3),
            bytes_per_step: if is_growing { 1 << 20 } else { 0 },
            is_growing,
            held_by: String::new(),
        };
        let said = |site| job_text(&JobReport { processes: 4, leaks: vec![site], ..JobReport::default() });
        let text = |is_growing| said(site(is_growing, "a.c:1 f"));
        let kept = text(false);
        assert!(kept.contains("Never given back on rank 3 only: 20.0 MiB") && !kept.contains("every step"), "{kept}");
        assert!(text(true).contains("Leak on rank 3 only: 1.0 MiB more with every step"), "{}", text(true));
        let unknown = said(site(true, NO_STACK)).replace('\n', " ");
        assert!(unknown.contains("20.0 MiB by now, from a line that was not recorded (--call-stack="), "{unknown}");
    }
}

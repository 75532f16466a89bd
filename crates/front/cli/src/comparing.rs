//! `compare` and `--compare`: two recordings or two steps.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use msmemscope_analysis::compare::{Comparison, Level, Part, SharedNames, compare, profile};
use msmemscope_config::{LevelSet, Settings, SettingsChange};
use msmemscope_event::visible;
use msmemscope_import::Recording;
use msmemscope_output::files::{FILE_MODE, create_directories, create_new, local_timestamp, now_seconds};
use msmemscope_report::units::step_list;
use msmemscope_report::{write_csv, write_html};
use msmemscope_timeline::TimelineSettings;

use crate::analyzing::{open_all, print_json};
use crate::terminal::Terminal;
use crate::{Outcome, print_text};
use msmemscope_results::scopes::Scopes;

/// How often another second is tried for the name of the result.
const NAME_ATTEMPTS: i64 = 60;

/// How the result is wanted.
pub struct Wanted {
    /// Print JSON instead of text.
    pub as_json: bool,
    /// Write a page, too.
    pub as_html: bool,
}

/// Compares two inputs, writes all rows to a file and prints a summary.
pub fn compare_inputs(settings: &Settings, inputs: &[PathBuf; 2], wanted: Wanted, terminal: &Terminal) -> Outcome {
    let level = match settings.level {
        LevelSet::OP => Level::Operator,
        LevelSet::KERNEL => Level::Kernel,
        _ => return Err("--level: a comparison needs one level, op or kernel".to_owned()),
    };
    let steps: [Option<u64>; 2] = match settings.steps[..] {
        [] => [None, None],
        [step] => [Some(u64::from(step)); 2],
        [base, other] => [Some(u64::from(base)), Some(u64::from(other))],
        _ => return Err("--steps: a comparison takes one or two steps".to_owned()),
    };
    if let ([Some(base), Some(other)], true) = (steps, inputs[0] == inputs[1])
        && base == other
    {
        let problem = format!("step {base} would be compared with itself; give two steps or two recordings");
        return Err(format!("--steps: {problem}"));
    }
    let mut names = SharedNames::default();
    let mut side = |index: usize| {
        let imported = open_all(&inputs[index..=index], terminal)?;
        let part = steps[index].map_or(Part::Chosen(&chosen_when_recorded), Part::Step);
        Ok::<_, String>(profile(&imported.recordings, level, part, &mut names))
    };
    let (base, other) = (side(0)?, side(1)?);
    let comparison = compare(&base, &other, &names).map_err(|error| error.to_string())?;
    let current = std::env::current_dir().map_err(|error| format!("the working directory is gone: {error}"))?;
    if comparison.is_of_memory_only() {
        if wanted.as_html {
            return Err(
                "--html: the page shows operators or kernels that both inputs have, and there are none".to_owned()
            );
        }
        return match wanted.as_json {
            true => print_json(&serde_json::json!({ "comparison": comparison, "file": null, "page": null })),
            false => print_text(&msmemscope_report::comparison(&comparison)),
        };
    }
    let path = write(&comparison, &names, &settings.absolute_output(&current).join("compare"))?;
    let page = match wanted.as_html {
        true => Some(write_page(&comparison, &names, inputs, &steps, &path)?),
        false => None,
    };
    if wanted.as_json {
        let value = serde_json::json!({ "comparison": comparison, "file": path, "page": page });
        return print_json(&value);
    }
    let mut summary =
        format!("{}Rows in {}\n", msmemscope_report::comparison(&comparison), visible(&path.to_string_lossy()));
    if let Some(page) = page {
        summary.push_str(&format!("Page in {}\n", visible(&page.to_string_lossy())));
    }
    print_text(&summary)
}

/// What was chosen when a recording was made: its steps and devices, so that it says the same as its own files. Which
/// kinds of rows they have does not matter here. Files hold what was chosen and nothing else.
fn chosen_when_recorded(recording: &Recording) -> TimelineSettings {
    match recording {
        Recording::Trace { trace, .. } => {
            let scopes = Scopes::of(trace.definitions(), &SettingsChange::default());
            scopes.with_every_kind_of_event().timeline(false)
        }
        Recording::Process(_) => TimelineSettings::default(),
    }
}

/// Writes the page beside the rows.
fn write_page(
    comparison: &Comparison,
    names: &SharedNames,
    inputs: &[PathBuf; 2],
    steps: &[Option<u64>; 2],
    rows: &Path,
) -> Result<PathBuf, String> {
    let path = rows.with_extension("html");
    let failed = |error: std::io::Error| format!("cannot write '{}': {error}", path.display());
    let file = create_new(&path, FILE_MODE).map_err(failed)?;
    let side = |index: usize| {
        let steps = steps[index].map_or_else(|| comparison.recorded_steps[index].clone(), |step| vec![step]);
        let step = if steps.is_empty() { String::new() } else { format!(", {}", step_list(&steps)) };
        format!("{}{step}", inputs[index].display())
    };
    let sides = [side(0), side(1)];
    write_html(comparison, names, [&sides[0], &sides[1]], &mut BufWriter::new(file)).map_err(failed)?;
    Ok(path)
}

/// Writes the rows to a new file; if its name is taken, the time moves on one second.
fn write(comparison: &Comparison, names: &SharedNames, directory: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("cannot write to '{}': {error}", directory.display());
    create_directories(directory).map_err(failed)?;
    let now = now_seconds();
    for attempt in 0..NAME_ATTEMPTS {
        let path = directory.join(format!("memory_compare_{}.csv", local_timestamp(now + attempt)));
        match create_new(&path, FILE_MODE) {
            Ok(file) => {
                write_csv(comparison, names, &mut BufWriter::new(file)).map_err(failed)?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(format!("too many results of this minute in '{}'", directory.display()))
}

//! The keys of the Python `config()`: the same table and the same values as on the command line.

use std::ffi::OsStr;

use msmemscope_settings::{CollectMode, Settings};

use crate::change::SettingsChange;
use crate::error::ConfigError;
use crate::note::Note;
use crate::suggest::nearest;
use crate::table::{OPTIONS, OptionId};

/// Reads the keyword arguments of one `config()` call. Nothing is applied if one of them is wrong.
///
/// Two spellings of one key may stand side by side only with the same value.
pub fn apply_python_config(arguments: &[(&str, &str)]) -> Result<SettingsChange, ConfigError> {
    let mut change = SettingsChange::default();
    let mut taken: Vec<(OptionId, &'static str, &str)> = Vec::new();
    for (key, value) in arguments {
        let found = OPTIONS.iter().find_map(|spec| {
            let spelling = spec.python_keys.iter().find(|spelling| *spelling == key)?;
            Some((spec, *spelling))
        });
        let Some((spec, spelling)) = found else {
            return Err(ConfigError::UnknownKey {
                key: key.to_string(),
                value: value.to_string(),
                suggestion: nearest(key, python_keys()),
            });
        };
        if let Some((_, first, earlier)) = taken.iter().find(|(id, _, _)| *id == spec.id) {
            if earlier != value {
                return Err(ConfigError::GivenTwice { first, second: spelling, value: value.to_string() });
            }
            continue;
        }
        if spec.id == OptionId::Watch && value.is_empty() {
            change.watch = Some(None); // as an empty list of anything else; on the command line END is missing
        } else {
            change.set(spec, spelling, OsStr::new(value))?;
        }
        taken.push((spec.id, spelling, value));
    }
    Ok(change)
}

/// Whether the value of a key is a list, written with commas.
pub fn takes_list(key: &str) -> bool {
    let found = OPTIONS.iter().find(|spec| spec.python_keys.contains(&key));
    found.is_some_and(|spec| {
        matches!(
            spec.id,
            OptionId::Level
                | OptionId::Events
                | OptionId::Steps
                | OptionId::CallStack
                | OptionId::Device
                | OptionId::Analysis
                | OptionId::Watch
                | OptionId::DataFormat
        )
    })
}

/// All keys of `config()`.
pub fn python_keys() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().flat_map(|spec| spec.python_keys.iter().copied())
}

impl SettingsChange {
    /// The settings after a `config()` call, and everything the user should be told about it.
    ///
    /// What a call does not name falls back to what the process was started with (`launched`: the command line's
    /// settings, or else the defaults), except the settings that hold for the whole process (output directory,
    /// formats, watch, verbosity, style of reports, size limit): those stay. Once recording has begun (`is_fixed`),
    /// output directory and formats can no longer change, and watch only to nothing. Recording waits for `start()`.
    pub fn apply_in_python(
        &self,
        current: &Settings,
        launched: Option<&Settings>,
        is_fixed: bool,
    ) -> (Settings, Vec<Note>) {
        let defaults = Settings::defaults(current.variant);
        let base = Settings {
            watch: current.watch.clone(),
            data_formats: current.data_formats,
            output: current.output.clone(),
            log_level: current.log_level,
            report: current.report,
            max_trace_size_bytes: current.max_trace_size_bytes,
            flight_recorder_bytes: current.flight_recorder_bytes,
            python_frames: current.python_frames,
            collect_mode: CollectMode::Deferred,
            ..launched.cloned().unwrap_or_else(|| defaults.clone())
        };
        let (mut settings, mut notes) = self.apply_to(&base);
        if let Some(launched) = launched {
            notes.extend(replaced(&settings, launched, &defaults));
        }
        if is_fixed {
            let by_command_line = launched.is_some();
            let mut keep = |is_changed: bool, name: &str, kept: String| {
                if is_changed {
                    notes.push(Note::FixedKey { name: name.to_string(), kept, by_command_line });
                }
            };
            let (csv, db) = (current.data_formats.csv, current.data_formats.db);
            let formats = [(csv, "csv"), (db, "db")].into_iter().filter(|(is_on, _)| *is_on).map(|(_, word)| word);
            let formats: Vec<&str> = formats.collect();
            keep(settings.output != current.output, "output", format!("'{}'", current.output.display()));
            // What a flight recorder has forgotten is gone.
            let is_ended = current.flight_recorder_bytes.is_some() && settings.flight_recorder_bytes.is_none();
            keep(is_ended, "flight_recorder", "the size".to_owned());
            if is_ended {
                settings.flight_recorder_bytes = current.flight_recorder_bytes;
            }
            keep(settings.data_formats != current.data_formats, "data_format", format!("'{}'", formats.join(",")));
            // Watching can end at any time.
            let is_off = settings.watch.is_none();
            keep(!is_off && settings.watch != current.watch, "watch", "the value".to_owned());
            settings.output = base.output;
            settings.data_formats = base.data_formats;
            settings.watch = base.watch.filter(|_| !is_off);
        }
        (settings, notes)
    }
}

/// Keys whose value the command line had set and `config()` has changed.
fn replaced(settings: &Settings, launched: &Settings, defaults: &Settings) -> Vec<Note> {
    /// Whether a field was set, and is another now.
    macro_rules! is_replaced {
        ($field:ident) => {
            launched.$field != defaults.$field && settings.$field != launched.$field
        };
    }
    let keys = [
        (is_replaced!(level), "level"),
        (is_replaced!(events), "events"),
        (is_replaced!(steps), "steps"),
        (is_replaced!(call_stacks), "call_stack"),
        (is_replaced!(devices), "device"),
        (is_replaced!(analysis), "analysis"),
        (is_replaced!(holders), "holders"),
    ];
    keys.into_iter()
        .filter(|(is_replaced, _)| *is_replaced)
        .map(|(_, name)| Note::CommandLineReplaced { name })
        .collect()
}

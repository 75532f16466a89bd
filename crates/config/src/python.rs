//! The keys of the Python `config()`: the same table and the same values as on the command line.

use std::ffi::OsStr;

use crate::change::SettingsChange;
use crate::error::ConfigError;
use crate::note::Note;
use crate::settings::{CollectMode, Settings};
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
        change.set(spec, spelling, OsStr::new(value))?;
        taken.push((spec.id, spelling, value));
    }
    Ok(change)
}

/// All keys of `config()`.
pub fn python_keys() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().flat_map(|spec| spec.python_keys.iter().copied())
}

impl SettingsChange {
    /// The settings after a `config()` call, and everything the user should be told about it.
    ///
    /// What a call does not name falls back to its default, except the settings that hold for the whole
    /// process (output directory, formats, watch, verbosity, size limit): those stay. Once recording has
    /// begun (`is_fixed`), output directory, formats and watch can no longer change. Recording waits for
    /// `start()`.
    pub fn apply_in_python(&self, current: &Settings, is_fixed: bool) -> (Settings, Vec<Note>) {
        let base = Settings {
            watch: current.watch.clone(),
            data_formats: current.data_formats,
            output: current.output.clone(),
            log_level: current.log_level,
            max_trace_size_bytes: current.max_trace_size_bytes,
            python_frames: current.python_frames,
            collect_mode: CollectMode::Deferred,
            ..Settings::defaults(current.variant)
        };
        let (mut settings, mut notes) = self.apply_to(&base);
        if is_fixed {
            let mut keep = |is_changed: bool, name: &str| {
                if is_changed {
                    notes.push(Note::FixedKey { name: name.to_string() });
                }
            };
            keep(settings.output != current.output, "output");
            keep(settings.data_formats != current.data_formats, "data_format");
            keep(settings.watch != current.watch, "watch");
            settings.output = base.output;
            settings.data_formats = base.data_formats;
            settings.watch = base.watch;
        }
        (settings, notes)
    }
}

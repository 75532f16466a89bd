//! `config.json`: the settings of a run for people and for tools that read the recording later.

use std::fmt::Write as _;
use std::path::Path;

use msmemscope_settings::{CollectMode, EventSet, LogLevel, Settings, WatchTarget};

/// `outputId` of a watch that is not limited to one output.
const NO_OUTPUT: u32 = u32::MAX;
/// Length of `stepIdList`; unused places are 0.
const STEP_PLACES: usize = 5;

/// The text of `config.json` for a run that writes into `output_directory`.
///
/// Keys and numbers are those existing readers know. `dataFormat` is 2 when both formats are written,
/// and the Python trace has no bit in the event masks.
pub fn config_json(settings: &Settings, output_directory: &Path, is_comparison: bool) -> String {
    let stacks = settings.call_stacks;
    let memory_and_operators = |events: EventSet| events.without(EventSet::TRACEBACK).bits();
    let depth = |depth: Option<u16>| Value::from(depth.unwrap_or(Settings::DEFAULT_STACK_DEPTH));
    let data_format = match (settings.data_formats.csv, settings.data_formats.db) {
        (_, false) => 0u8,
        (false, true) => 1,
        (true, true) => 2,
    };
    let log_level = match settings.log_level {
        LogLevel::Debug => 0u8,
        LogLevel::Info => 1,
        LogLevel::Warn => 2,
        LogLevel::Error => 3,
    };
    let mut text = String::new();
    Value::Object(vec![
        ("SelectedStepList", steps(&settings.steps)),
        ("analysisType", settings.analysis.bits().into()),
        ("cStackDepth", depth(stacks.native_depth)),
        ("collectAllNpu", settings.devices.all_npus.into()),
        ("collectCpu", settings.devices.cpu.into()),
        ("collectMode", u8::from(settings.collect_mode == CollectMode::Deferred).into()),
        ("dataFormat", data_format.into()),
        ("dumpEventType", memory_and_operators(settings.events.written).into()),
        ("enableCStack", stacks.native_depth.is_some().into()),
        ("enableCompare", is_comparison.into()),
        ("enablePyStack", stacks.python_depth.is_some().into()),
        ("eventType", memory_and_operators(settings.events.collected).into()),
        ("isEffective", true.into()),
        ("levelType", settings.level.bits().into()),
        ("logLevel", log_level.into()),
        ("npuSlots", settings.devices.npu_slots.into()),
        ("oomTopK", settings.oom_block_count.into()),
        ("outputDir", Value::Text(output_directory.to_string_lossy().into_owned())),
        ("pyStackDepth", depth(stacks.python_depth)),
        ("watchConfig", watch(settings)),
    ])
    .write(&mut text, 0);
    text.push('\n');
    text
}

fn steps(steps: &[u32]) -> Value {
    let places = steps.iter().copied().chain(std::iter::repeat(0)).take(STEP_PLACES);
    Value::Object(vec![
        ("stepCount", Value::Number(steps.len() as u64)),
        ("stepIdList", Value::Array(places.map(Value::from).collect())),
    ])
}

fn watch(settings: &Settings) -> Value {
    let watch = settings.watch.as_ref();
    let (start, output_index, end) = match watch.map(|watch| &watch.target) {
        Some(WatchTarget::Operators { start, output_index, end }) => {
            (start.as_deref().unwrap_or_default(), *output_index, end.as_str())
        }
        Some(WatchTarget::Automatic { .. }) | None => ("", None, ""),
    };
    Value::Object(vec![
        ("end", Value::Text(end.to_string())),
        ("fullContent", watch.is_some_and(|watch| watch.full_content).into()),
        ("isWatched", watch.is_some().into()),
        ("outputId", output_index.unwrap_or(NO_OUTPUT).into()),
        ("start", Value::Text(start.to_string())),
    ])
}

/// As much of JSON as the file needs.
enum Value {
    Bool(bool),
    Number(u64),
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(&'static str, Value)>),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

/// Numbers of any width become numbers.
macro_rules! value_from_number {
    ($($number:ty),+) => {
        $(impl From<$number> for Value {
            fn from(value: $number) -> Self {
                Value::Number(u64::from(value))
            }
        })+
    };
}
value_from_number!(u8, u16, u32);

impl Value {
    fn write(&self, text: &mut String, depth: usize) {
        // Writing to a String cannot fail.
        match self {
            Value::Bool(value) => drop(write!(text, "{value}")),
            Value::Number(value) => drop(write!(text, "{value}")),
            Value::Text(value) => write_text(text, value),
            Value::Array(items) => {
                let entries = items.iter().map(|item| (None, item));
                write_entries(text, depth, ['[', ']'], entries);
            }
            Value::Object(items) => {
                let entries = items.iter().map(|(key, value)| (Some(*key), value));
                write_entries(text, depth, ['{', '}'], entries);
            }
        }
    }
}

/// Writes the entries of an array or object, one per line, indented by 4 spaces.
fn write_entries<'a>(
    text: &mut String,
    depth: usize,
    brackets: [char; 2],
    entries: impl Iterator<Item = (Option<&'static str>, &'a Value)>,
) {
    let indent = |depth: usize| "    ".repeat(depth);
    text.push(brackets[0]);
    let mut separator = "\n";
    for (key, value) in entries {
        let _ = write!(text, "{separator}{}", indent(depth + 1));
        if let Some(key) = key {
            let _ = write!(text, "\"{key}\": ");
        }
        value.write(text, depth + 1);
        separator = ",\n";
    }
    let _ = write!(text, "\n{}{}", indent(depth), brackets[1]);
}

fn write_text(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            _ if u32::from(character) < 0x20 => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut text = String::new();
        write_text(&mut text, "a\"b\\c\nd\u{1}内");
        assert_eq!(text, "\"a\\\"b\\\\c\\nd\\u0001内\"");
    }
}

//! How users write moments of a running job, `growth>1GiB/h`, and what is to be done then, `oom:run notify.sh`.

use msmemscope_settings::{GrowthRate, Reaction, Trigger, quoted};

use crate::suggest::nearest;
use crate::value::size_bytes;

/// Units of time with their seconds.
const TIME_UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3600), ("d", 86_400)];
/// What introduces a command.
const RUN: &str = "run ";

/// A moment: a word, with a limit behind `>` where it has one.
pub(crate) fn parse_trigger(text: &str) -> Result<Trigger, String> {
    let (word, limit) = match text.split_once('>') {
        Some((word, limit)) => (word.trim(), Some(limit.trim())),
        None => (text.trim(), None),
    };
    let wrong = |limit: &str, what: &str| format!("{} is no {what}", quoted(limit));
    match (word, limit) {
        ("oom", None) => Ok(Trigger::OutOfMemory),
        ("signal", None) => Ok(Trigger::Signal),
        ("end", None) => Ok(Trigger::End),
        ("growth", None) => Ok(Trigger::Growth(GrowthRate::DEFAULT)),
        ("growth", Some(rate)) => {
            growth_rate(rate).map(Trigger::Growth).ok_or_else(|| wrong(rate, "size in a time, such as 1GiB/h"))
        }
        ("peak", None) => Ok(Trigger::Peak(None)),
        ("peak", Some(size)) => {
            let size_bytes = size_bytes(size).ok_or_else(|| wrong(size, "size, such as 60GiB"))?;
            Ok(Trigger::Peak(Some(size_bytes)))
        }
        ("oom" | "signal" | "end", Some(_)) => Err(format!("{} has no limit", quoted(word))),
        _ => {
            let meant =
                nearest(word, Trigger::WORDS).map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
            Err(format!("{} is unknown{meant}", quoted(word)))
        }
    }
}

fn growth_rate(text: &str) -> Option<GrowthRate> {
    let (size, time) = text.split_once('/')?;
    let seconds = TIME_UNITS.iter().find(|(unit, _)| *unit == time.trim())?.1;
    let bytes = size_bytes(size).filter(|bytes| *bytes > 0)?;
    Some(GrowthRate { bytes, seconds })
}

/// A moment and what is to be done then: `MOMENT:run COMMAND`.
pub(crate) fn parse_reaction(text: &str) -> Result<Reaction, String> {
    let (trigger, action) = text.split_once(':').ok_or_else(|| "what is to be done is missing".to_owned())?;
    let trigger = parse_trigger(trigger)?;
    if matches!(trigger, Trigger::Signal | Trigger::End) {
        return Err(format!("nothing can be run at {}", quoted(trigger.word())));
    }
    let command = action.trim_start().strip_prefix(RUN).map(str::trim).unwrap_or_default();
    if command.is_empty() {
        return Err("the command is missing".to_owned());
    }
    Ok(Reaction { trigger, command: command.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_words_with_limits() {
        let rate = |bytes, seconds| Ok(Trigger::Growth(GrowthRate { bytes, seconds }));
        assert_eq!(parse_trigger("oom"), Ok(Trigger::OutOfMemory));
        assert_eq!(parse_trigger("growth"), rate(1 << 30, 3600));
        assert_eq!(parse_trigger("growth > 10 MiB / min"), rate(10 << 20, 60));
        assert_eq!(parse_trigger("growth>1GiB/h"), rate(1 << 30, 3600));
        assert_eq!(parse_trigger("peak>60GiB"), Ok(Trigger::Peak(Some(60 << 30))));
        for wrong in ["growth>1GiB", "growth>0/h", "growth>1GiB/week", "peak>much", "oom>3", "", "grwoth", "signal>1"] {
            assert!(parse_trigger(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_to_be_done_follows_the_moment() {
        let command = |text: &str| parse_reaction(text).map(|reaction| (reaction.trigger.word(), reaction.command));
        assert_eq!(command("oom:run cp -r \"$X\" /a:b"), Ok(("oom", "cp -r \"$X\" /a:b".to_owned())));
        assert_eq!(command("growth>1GiB/h: run mail me "), Ok(("growth", "mail me".to_owned())));
        for wrong in ["oom", "oom:", "oom:run", "oom:run  ", "oom:kill", "end:run x", "signal:run x"] {
            assert!(parse_reaction(wrong).is_err(), "{wrong}");
        }
    }
}

//! The value of `--watch`: `[START[:OUT],]END[,full-content]` or
//! `auto[:SIZE][,owner=LABEL][,full-content]`.
//!
//! `full-content` and whatever begins with `owner=` are never operators, so a lone `END,full-content`
//! and `auto,owner=weight` are clear.

use msmemscope_settings::{Watch, WatchTarget, quoted};

use crate::value::{list_parts, number, size_bytes};

const FULL_CONTENT: &str = "full-content";
const AUTOMATIC: &str = "auto";
const OWNER: &str = "owner=";
const OWNER_ALONE: &str = "'owner=' stands behind 'auto' only";

/// Reads a watch value; the error is a sentence about what is wrong with it.
pub(crate) fn parse_watch(text: &str) -> Result<Watch, String> {
    let mut parts: Vec<&str> = list_parts(text).collect();
    // `START,END,` leaves an empty third part.
    if parts.len() > 2 && parts.last() == Some(&"") {
        parts.pop();
    }
    let full_content = parts.len() > 1 && parts.last() == Some(&FULL_CONTENT);
    if full_content {
        parts.pop();
    }
    if parts.contains(&FULL_CONTENT) {
        return Err("'full-content' is no operator and stands last".to_string());
    }
    let target = match parts[..] {
        [only] => match automatic(only, None) {
            Some(target) => target?,
            None => operators("", only)?,
        },
        [first, second] => match second.strip_prefix(OWNER) {
            Some(label) => automatic(first, Some(label)).unwrap_or_else(|| Err(OWNER_ALONE.to_string()))?,
            None => operators(first, second)?,
        },
        [_, _, third, ..] => return Err(format!("{} is not full-content", quoted(third))),
        [] => unreachable!("a split text has at least one part"),
    };
    Ok(Watch { target, full_content })
}

/// `auto` or `auto:SIZE`, for the blocks with a label or for all; `None` if it is neither.
fn automatic(part: &str, label: Option<&str>) -> Option<Result<WatchTarget, String>> {
    let size = match part.strip_prefix(AUTOMATIC)? {
        "" => None,
        rest => Some(rest.strip_prefix(':')?),
    };
    if size.is_some_and(|size| size.starts_with(':')) {
        // `auto::x` is an operator with a namespace.
        return None;
    }
    let size_limit_bytes = size.map(parse_size_limit).transpose();
    let owner = label.map(parse_label).transpose();
    Some(size_limit_bytes.and_then(|size_limit_bytes| Ok(WatchTarget::Automatic { size_limit_bytes, owner: owner? })))
}

fn parse_size_limit(size: &str) -> Result<u64, String> {
    size_bytes(size).filter(|bytes| *bytes > 0).ok_or_else(|| format!("{} is no size such as 64MiB", quoted(size)))
}

fn parse_label(label: &str) -> Result<String, String> {
    match label.rsplit_once('@') {
        _ if label.is_empty() => Err("the label behind 'owner=' is missing".to_string()),
        Some((_, last)) => Err(format!("an owner is chosen by one label, such as {}", quoted(last))),
        None => Ok(label.to_string()),
    }
}

fn operators(start: &str, end: &str) -> Result<WatchTarget, String> {
    if end.starts_with(OWNER) || start.starts_with(OWNER) {
        return Err(OWNER_ALONE.to_string());
    }
    if end.is_empty() {
        return Err("the END operator is missing".to_string());
    }
    if split_output(end).1.is_some() {
        return Err(format!("an output needs a START operator, but {} is END", quoted(end)));
    }
    let (start, output) = split_output(start);
    if start.is_empty() && output.is_some() {
        return Err("an output needs a START operator".to_string());
    }
    let output_index = output.map(parse_output).transpose()?;
    let start = (!start.is_empty()).then(|| start.to_string());
    Ok(WatchTarget::Operators { start, output_index, end: end.to_string() })
}

/// Cuts `:OUT` off an operator; the two colons of a namespace (`aten::add`) are part of its name.
fn split_output(operator: &str) -> (&str, Option<&str>) {
    match operator.rsplit_once(':') {
        Some((name, output)) if !name.ends_with(':') => (name, Some(output)),
        _ => (operator, None),
    }
}

fn parse_output(output: &str) -> Result<u32, String> {
    let digits = output.strip_prefix("out").unwrap_or(output);
    // The largest number stands for "unset" in config.json.
    match number(digits, 0..=u64::from(u32::MAX) - 1) {
        Ok(index) => Ok(index as u32),
        Err(_) => Err(format!("{} is no output such as out1 or 1", quoted(output))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(start: Option<&str>, output_index: Option<u32>, end: &str, full_content: bool) -> Watch {
        let start = start.map(str::to_string);
        Watch { target: WatchTarget::Operators { start, output_index, end: end.to_string() }, full_content }
    }

    #[test]
    fn accepts_every_documented_form() {
        for (text, expected) in [
            ("end", watch(None, None, "end", false)),
            (",end", watch(None, None, "end", false)),
            ("，end", watch(None, None, "end", false)),
            ("end,full-content", watch(None, None, "end", true)),
            (",end,full-content", watch(None, None, "end", true)),
            ("op0,op1", watch(Some("op0"), None, "op1", false)),
            ("op0,op1,", watch(Some("op0"), None, "op1", false)),
            ("op0,op1,full-content", watch(Some("op0"), None, "op1", true)),
            ("op0，op1，full-content", watch(Some("op0"), None, "op1", true)),
            ("op0:1,op1", watch(Some("op0"), Some(1), "op1", false)),
            ("op0:out1,op1", watch(Some("op0"), Some(1), "op1", false)),
            ("op0:0,op1,full-content,", watch(Some("op0"), Some(0), "op1", true)),
            ("aten::add:out2,aten::mul", watch(Some("aten::add"), Some(2), "aten::mul", false)),
            ("auto,end", watch(Some("auto"), None, "end", false)),
            (
                "token0/layer0/module0/op0,token0/layer0/module0/op1,full-content",
                watch(Some("token0/layer0/module0/op0"), None, "token0/layer0/module0/op1", true),
            ),
        ] {
            assert_eq!(parse_watch(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn accepts_the_automatic_forms() {
        for (text, size_limit_bytes, owner, full_content) in [
            ("auto", None, None, false),
            ("auto:64MiB", Some(64 << 20), None, false),
            ("auto,full-content", None, None, true),
            ("auto,owner=weight", None, Some("weight"), false),
            ("auto:16MiB，owner=my cache，full-content", Some(16 << 20), Some("my cache"), true),
        ] {
            let target = WatchTarget::Automatic { size_limit_bytes, owner: owner.map(str::to_string) };
            assert_eq!(parse_watch(text), Ok(Watch { target, full_content }), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            ",",
            ",,",
            "op0,",
            "full-content",
            ",full-content",
            "full-content,op1",
            "op0,full-content,op1",
            "op0,op1,content",
            "op0,op1,full-content,x",
            "op0:01,op1",
            "op0:outx,op1",
            "op0:,op1",
            "op0:4294967295,op1",
            ":1,op1",
            "op0:1",
            "auto:",
            "auto:0",
            "auto:big",
            "auto,owner=",
            "auto:0,owner=weight",
            "auto,owner=PTA@model@weight",
            "auto,owner=weight,gradient",
            "auto,end,owner=weight",
            "owner=weight",
            "owner=weight,auto",
            "op0,owner=weight",
        ] {
            assert!(parse_watch(text).is_err(), "{text}");
        }
    }
}

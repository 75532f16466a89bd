//! `watch`: changes of watched memory that nobody declared.

use serde_json::{Value, json};

use super::Answer;
use super::scope::{Scope, address};

/// Changes that are listed.
const MOST_CHANGES: usize = 500;

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let Some(report) = scope.findings().and_then(|findings| findings.watch.as_ref()) else {
        return Ok(json!({ "blocks": [], "changes": [], "hunt": null }));
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let watched = list(&report["blocks"]);
    let blocks: Vec<Value> = watched
        .iter()
        .map(|block| {
            json!({
                "name": block["name"],
                "device": block["device"],
                "address": address(block["address"].as_u64().unwrap_or(0)),
                "bytes": block["size_bytes"],
                "looks": block["looks"],
                "declared_changes": block["declared_changes"],
                "content_hash": block["content_hash"],
                "corruptions": list(&block["corruptions"]).len(),
            })
        })
        .collect();
    let of_blocks = watched
        .iter()
        .enumerate()
        .flat_map(|(number, block)| list(&block["corruptions"]).into_iter().map(move |change| (Some(number), change)));
    let of_hunt = list(&report["hunt"]["corruptions"]).into_iter().map(|change| (None, change));
    let mut changes: Vec<Value> =
        of_blocks.chain(of_hunt).map(|(block, change)| shown(scope, block, &change)).collect();
    changes.sort_by_key(|change| change["t"].as_u64());
    let total = changes.len();
    changes.truncate(MOST_CHANGES);
    let hunt = match &report["hunt"] {
        Value::Object(hunt) => json!({
            "owner": hunt.get("owner"),
            "operators": hunt.get("operators"),
            "looks_due": hunt.get("looks_due"),
            "looks_taken": hunt.get("looks_taken"),
        }),
        _ => Value::Null,
    };
    Ok(json!({ "blocks": blocks, "changes": changes, "changes_total": total, "hunt": hunt }))
}

fn shown(scope: &Scope<'_>, block: Option<usize>, change: &Value) -> Value {
    let number = |name: &str| change[name].as_u64().unwrap_or(0);
    let text = |name: &str| change[name].as_str().unwrap_or("");
    let frames = if change["python"][0].is_object() { &change["python"] } else { &change["native"] };
    let frame = named_frame(frames, text("line"));
    let spans: Vec<Value> =
        change["spans"].as_array().into_iter().flatten().map(|span| json!([span["start"], span["end"]])).collect();
    let sentence = format!(
        "{} changed beside operator {} (call {}), since {}: {}",
        msmemscope_report::units::bytes(number("changed_bytes")),
        text("operator"),
        number("call"),
        text("since_operator"),
        text("line"),
    );
    json!({
        "t": scope.shown(number("timestamp_ns")),
        "block": block,
        "address": address(number("address")),
        "operator": change["operator"],
        "call": change["call"],
        "changed_bytes": change["changed_bytes"],
        "sentence": sentence,
        "file": frame["file"],
        "line": frame["line"],
        "function": frame["function"],
        "step": change["step"],
        "thread": change["thread_id"],
        "spans": spans,
    })
}

/// The frame that a line in words stands for, `file:line function`; the innermost one if none does.
fn named_frame<'a>(frames: &'a Value, line: &str) -> &'a Value {
    let is_named = |frame: &&Value| {
        let text = |key: &str| frame[key].as_str().unwrap_or("").to_owned();
        format!("{}:{} {}", text("file"), frame["line"], text("function")) == line
    };
    frames.as_array().into_iter().flatten().find(is_named).unwrap_or(&frames[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_frame_is_shown() {
        let frames = json!([
            { "file": "torch/_dynamo/eval_frame.py", "line": 1446, "function": "inner" },
            { "file": "train.py", "line": 69, "function": "main" },
        ]);
        assert_eq!(named_frame(&frames, "train.py:69 main")["line"], 69);
        assert_eq!(named_frame(&frames, "operator aten.add")["line"], 1446);
        assert_eq!(*named_frame(&json!([]), "train.py:69 main"), Value::Null);
    }
}

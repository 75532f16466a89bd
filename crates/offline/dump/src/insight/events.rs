//! The event table.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::{InsightReport, REFUSED_CHARACTERS, Rule};
use crate::columns::{COLUMNS, REQUIRED_COLUMNS as FIXED_COLUMNS};

const STACK_PREFIX: &str = "Call Stack";

pub(super) fn check(connection: &Connection, table: &str, report: &mut InsightReport) -> rusqlite::Result<()> {
    let columns: Vec<String> = connection
        .prepare("SELECT name FROM pragma_table_info(?)")?
        .query_map([table], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    if !check_columns(&columns, report) {
        return Ok(());
    }
    let mut state = Events {
        report,
        open: FxHashMap::default(),
        live: FxHashMap::default(),
        used_ids: FxHashSet::default(),
        first_ns: i64::MAX,
        last_ns: i64::MIN,
        usable_device: false,
    };
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\" ORDER BY \"Timestamp(ns)\", ID"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        state.row(row)?;
    }
    state.finish();
    Ok(())
}

fn check_columns(columns: &[String], report: &mut InsightReport) -> bool {
    let expected = COLUMNS.iter().take(FIXED_COLUMNS).map(|column| column.name);
    let mut fits = true;
    for (position, name) in expected.enumerate() {
        let found = columns.get(position).map_or("nothing", String::as_str);
        if found != name {
            report.add(Rule::Columns, format!("column {} is {found}, not {name}", position + 1));
            fits = false;
        }
    }
    let stacks: Vec<usize> =
        (0..columns.len()).filter(|&position| columns[position].starts_with(STACK_PREFIX)).collect();
    for (place, &position) in stacks.iter().enumerate() {
        let expected = COLUMNS[FIXED_COLUMNS + place.min(1)].name;
        let in_place = position == FIXED_COLUMNS + place;
        let in_order = stacks.len() < 2 || columns[position] == expected;
        if !in_place || !in_order || place > 1 {
            report.add(Rule::Columns, format!("{} is column {}", columns[position], position + 1));
        }
    }
    fits
}

/// A block whose FREE has not come.
struct OpenBlock {
    place: Place,
    size: u64,
    latest_ns: i64,
}

/// What Insight pairs MALLOC and FREE by.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    device: String,
    pointer: String,
    event_type: String,
}

struct Events<'r> {
    report: &'r mut InsightReport,
    /// Blocks by allocation id.
    open: FxHashMap<u64, OpenBlock>,
    /// Time of the latest MALLOC or FREE of a place, and whether a block lives there.
    live: FxHashMap<Place, (bool, i64)>,
    used_ids: FxHashSet<u64>,
    first_ns: i64,
    last_ns: i64,
    usable_device: bool,
}

fn text_of<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<Option<&'a str>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    })
}

impl Events<'_> {
    fn row(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        self.report.rows += 1;
        let id = match row.get_ref(0)? {
            ValueRef::Integer(id) => id,
            _ => -1,
        };
        let event = text_of(row, 1)?.unwrap_or_default();
        let event_type = text_of(row, 2)?;
        let timestamp_ns = self.timestamp(id, row.get_ref(4)?);
        let device = text_of(row, 7)?;
        match device {
            Some(device) if !device.contains(REFUSED_CHARACTERS) => {
                self.usable_device |= !matches!(device, "N/A" | "" | "host");
            }
            _ => self.report.add(Rule::DeviceText, format!("row {id}")),
        }
        if event_type.is_none_or(|event_type| event_type.contains(REFUSED_CHARACTERS)) {
            self.report.add(Rule::TypeText, format!("row {id}"));
        }
        let attributes = self.attributes(id, text_of(row, 9)?);
        if !matches!(event, "MALLOC" | "FREE" | "ACCESS") {
            return Ok(());
        }
        let pointer = text_of(row, 8)?.unwrap_or_default();
        let digits = pointer.strip_prefix("0x").unwrap_or_default();
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() != 16 || !digits.bytes().all(is_digit) {
            self.report.add(Rule::PointerText, format!("row {id}: {pointer}"));
        }
        let place = Place {
            device: device.unwrap_or_default().to_owned(),
            pointer: pointer.to_owned(),
            event_type: event_type.unwrap_or_default().to_owned(),
        };
        match event {
            "ACCESS" => self.access(id, &place, timestamp_ns, &attributes),
            _ => self.malloc_or_free(id, event == "MALLOC", place, timestamp_ns, &attributes),
        }
        Ok(())
    }

    fn timestamp(&mut self, id: i64, value: ValueRef<'_>) -> i64 {
        match value {
            ValueRef::Integer(timestamp_ns) if timestamp_ns > 0 && timestamp_ns < i64::MAX => {
                self.first_ns = self.first_ns.min(timestamp_ns);
                self.last_ns = self.last_ns.max(timestamp_ns);
                timestamp_ns
            }
            other => {
                self.report.add(Rule::Timestamp, format!("row {id}: {other:?}"));
                0
            }
        }
    }

    /// Checks the form of an attribute cell; gives back what Insight would read of it.
    fn attributes(&mut self, id: i64, text: Option<&str>) -> serde_json::Map<String, Value> {
        let Some(text) = text else { return serde_json::Map::new() };
        let object = match serde_json::from_str::<Value>(text) {
            Err(_) => return serde_json::Map::new(),
            Ok(Value::Object(object)) => object,
            Ok(_) => {
                self.report.add(Rule::AttributeObject, format!("row {id}: {text}"));
                return serde_json::Map::new();
            }
        };
        if let Some((key, _)) = object.iter().find(|(_, value)| !value.is_string()) {
            self.report.add(Rule::AttributeStrings, format!("row {id}: {key}"));
        }
        if has_blank_outside_strings(text) {
            self.report.add(Rule::AttributeBlanks, format!("row {id}"));
        }
        object
    }

    fn number(attributes: &serde_json::Map<String, Value>, key: &str) -> Option<u64> {
        attributes.get(key)?.as_str()?.parse().ok().filter(|&number| number > 0)
    }

    fn malloc_or_free(
        &mut self,
        id: i64,
        is_malloc: bool,
        place: Place,
        timestamp_ns: i64,
        attributes: &serde_json::Map<String, Value>,
    ) {
        let size = Self::number(attributes, "size");
        if size.is_none() {
            self.report.add(Rule::Size, format!("row {id}"));
        }
        // A FREE of a place without block is ignored by Insight, which is what a filter wants.
        match self.live.get(&place) {
            Some((true, _)) if is_malloc => self.report.add(Rule::Alternation, format!("row {id}")),
            Some((_, latest_ns)) if *latest_ns == timestamp_ns => {
                self.report.add(Rule::StrictOrder, format!("row {id}"));
            }
            _ => {}
        }
        self.live.insert(place.clone(), (is_malloc, timestamp_ns));
        let Some(allocation_id) = Self::number(attributes, "allocation_id") else {
            return self.report.add(Rule::AllocationId, format!("row {id}"));
        };
        if is_malloc {
            if !self.used_ids.insert(allocation_id) {
                self.report.add(Rule::AllocationIdUnique, format!("row {id}: {allocation_id}"));
            }
            let block = OpenBlock { place, size: size.unwrap_or(0), latest_ns: timestamp_ns };
            self.open.insert(allocation_id, block);
            return;
        }
        let Some(block) = self.open.remove(&allocation_id) else {
            if self.used_ids.contains(&allocation_id) {
                self.report.add(Rule::Alternation, format!("row {id}: second FREE of allocation {allocation_id}"));
            }
            return;
        };
        if block.place != place || Some(block.size) != size {
            self.report.add(Rule::FreeMatches, format!("row {id}: differs from its MALLOC"));
        }
        if timestamp_ns <= block.latest_ns {
            self.report.add(Rule::StrictOrder, format!("row {id}"));
        }
    }

    fn access(&mut self, id: i64, place: &Place, timestamp_ns: i64, attributes: &serde_json::Map<String, Value>) {
        if !attributes.contains_key("allocation_id") {
            return; // An access to memory nobody knows; Insight lists it and makes nothing of it.
        }
        let Some(allocation_id) = Self::number(attributes, "allocation_id") else {
            return self.report.add(Rule::AllocationId, format!("row {id}"));
        };
        let Some(block) = self.open.get_mut(&allocation_id) else {
            if self.used_ids.contains(&allocation_id) {
                self.report.add(Rule::AccessMatches, format!("row {id}: allocation {allocation_id} has ended"));
            }
            return;
        };
        if block.place.pointer != place.pointer {
            self.report.add(Rule::AccessMatches, format!("row {id}: another Ptr than its MALLOC"));
        }
        if timestamp_ns <= block.latest_ns {
            self.report.add(Rule::StrictOrder, format!("row {id}"));
        }
        block.latest_ns = timestamp_ns;
    }

    fn finish(self) {
        if self.first_ns >= self.last_ns {
            self.report.add(Rule::TimeRange, format!("{} rows", self.report.rows));
        }
        if !self.usable_device {
            self.report.add(Rule::UsableDevice, "all devices are N/A, host or empty");
        }
    }
}

fn has_blank_outside_strings(json: &str) -> bool {
    let mut in_string = false;
    let mut is_escaped = false;
    for byte in json.bytes() {
        if in_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else if byte == b'"' {
            in_string = true;
        } else if byte.is_ascii_whitespace() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::has_blank_outside_strings;

    #[test]
    fn blanks_inside_strings_are_harmless() {
        assert!(!has_blank_outside_strings(r#"{"a b":"c \" d"}"#));
        assert!(has_blank_outside_strings(r#"{"a": "b"}"#));
        assert!(has_blank_outside_strings("{\"a\":\"b\\\\\" }"));
    }
}

//! Tables of Python calls.

use rusqlite::Connection;

use super::{InsightReport, Rule};

const COLUMNS: [&str; 5] = ["FuncInfo", "StartTime(ns)", "EndTime(ns)", "Thread Id", "Process Id"];

pub(super) fn check(connection: &Connection, report: &mut InsightReport) -> rusqlite::Result<()> {
    // The pattern is Insight's own: its underscores stand for any character.
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_master WHERE type='table' AND name LIKE 'python_trace_%'")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for table in tables {
        match table.strip_prefix("python_trace_").and_then(|suffix| suffix.parse::<i64>().ok()) {
            Some(process_id) => check_table(connection, &table, process_id, report)?,
            None => report.add(Rule::PythonTableName, table),
        }
    }
    Ok(())
}

fn check_table(
    connection: &Connection,
    table: &str,
    process_id: i64,
    report: &mut InsightReport,
) -> rusqlite::Result<()> {
    let columns: Vec<String> = connection
        .prepare("SELECT name FROM pragma_table_info(?)")?
        .query_map([table], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let missing: Vec<&str> = COLUMNS.into_iter().filter(|name| !columns.iter().any(|column| column == name)).collect();
    if !missing.is_empty() {
        report.add(Rule::PythonColumns, format!("{table} lacks {}", missing.join(", ")));
        return Ok(());
    }
    let mut statement = connection.prepare(&format!(
        "SELECT CAST(\"StartTime(ns)\" AS INTEGER), CAST(\"EndTime(ns)\" AS INTEGER), \"Thread Id\", \"Process Id\", \
         rowid FROM \"{table}\" ORDER BY \"Thread Id\", CAST(\"StartTime(ns)\" AS INTEGER)"
    ))?;
    let mut rows = statement.query([])?;
    let mut drawn = 0u64;
    let mut thread = None;
    let mut ends: Vec<i64> = Vec::new();
    while let Some(row) = rows.next()? {
        let (start_ns, end_ns): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (thread_id, row_process_id): (i64, i64) = (row.get(2)?, row.get(3)?);
        let number: i64 = row.get(4)?;
        if thread_id <= 0 || row_process_id != process_id || start_ns <= 0 || end_ns <= start_ns {
            report.add(Rule::PythonSlices, format!("{table} row {number}"));
            continue;
        }
        drawn += 1;
        if thread.replace(thread_id) != Some(thread_id) {
            ends.clear();
        }
        // A call stays open for Insight while its end is not before the next begin.
        while ends.last().is_some_and(|&open_end_ns| open_end_ns < start_ns) {
            ends.pop();
        }
        if ends.last().is_some_and(|&open_end_ns| open_end_ns < end_ns) {
            report.add(Rule::PythonNesting, format!("{table} row {number}"));
        }
        ends.push(end_ns);
    }
    if drawn == 0 {
        report.add(Rule::PythonRows, table);
    }
    Ok(())
}

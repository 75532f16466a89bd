//! Tables of text that fit a width: the widest text column gives way, and minor columns go before others cannot be read.

use crate::layout::{columns, fit, fit_middle, width};

/// On which side a column's texts stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Texts, whose ends tell most.
    Left,
    /// Names, whose beginnings and ends tell most.
    Name,
    /// Texts that give way before others do.
    Minor,
    /// Numbers.
    Right,
    /// Texts that somebody will copy: never cut.
    Whole,
}

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

const INDENT: usize = 2;
const GAP: usize = 2;
const LEAST_WIDTH: usize = 8;
/// Room for a file name with its line and function.
const READABLE_WIDTH: usize = 28;
/// Room for the end of a module's path.
const READABLE_MINOR_WIDTH: usize = 16;
/// What gives way in which order, and down to how many columns.
const GIVING_WAY: [(Align, usize); 5] = [
    (Align::Minor, READABLE_MINOR_WIDTH),
    (Align::Left, READABLE_WIDTH),
    (Align::Minor, LEAST_WIDTH),
    (Align::Left, LEAST_WIDTH),
    (Align::Name, LEAST_WIDTH),
];

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self { columns: columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Fills the last column, which is empty so far, with texts of the items, made for the room that the others leave.
    pub fn complete<T>(&mut self, items: &[T], text: impl Fn(&T, usize) -> String) {
        let mut widths = self.natural_widths();
        widths.pop();
        let room = width().saturating_sub(INDENT + widths.iter().map(|width| width + GAP).sum::<usize>());
        for (item, cell) in items.iter().zip(self.rows.iter_mut().filter_map(|row| row.last_mut())) {
            *cell = text(item, room.max(LEAST_WIDTH));
        }
    }

    /// The table as lines, each ended by a line break.
    pub fn render(&self) -> String {
        match self.unaffordable_column() {
            Some(column) => self.without(column).render(),
            None => self.render_whole(),
        }
    }

    /// A minor column for which there is room only if others cannot be read any more.
    fn unaffordable_column(&self) -> Option<usize> {
        let last_minor = self.columns.iter().rposition(|(_, align)| *align == Align::Minor)?;
        let gaps = INDENT + GAP * (self.columns.len() - 1);
        let needed = self.natural_widths().into_iter().zip(&self.columns).map(|(width, (_, align))| match align {
            Align::Left | Align::Name => width.min(READABLE_WIDTH),
            Align::Minor => width.min(LEAST_WIDTH),
            Align::Right | Align::Whole => width,
        });
        (needed.sum::<usize>() + gaps > width()).then_some(last_minor)
    }

    fn without(&self, column: usize) -> Self {
        let mut table = self.clone();
        table.columns.remove(column);
        table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        table
    }

    fn render_whole(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        let header: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        self.push_line(&mut text, &header, &widths);
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            self.push_line(&mut text, &cells, &widths);
        }
        text
    }

    fn natural_widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| columns(name)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(cell));
            }
        }
        widths
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = self.natural_widths();
        let gaps = INDENT + GAP * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width() {
            let excess = widths.iter().sum::<usize>() + gaps - width();
            let widest = |(align, least): (Align, usize)| {
                let columns =
                    (0..widths.len()).filter(|&index| self.columns[index].1 == align && widths[index] > least);
                columns.max_by_key(|&index| widths[index]).map(|index| (index, least))
            };
            let Some((index, least)) = GIVING_WAY.into_iter().find_map(widest) else { break };
            widths[index] = widths[index].saturating_sub(excess).max(least);
        }
        widths
    }

    fn push_line(&self, text: &mut String, cells: &[&str], widths: &[usize]) {
        let start = text.len();
        text.push_str(&" ".repeat(INDENT));
        for (index, (cell, &width)) in cells.iter().zip(widths).enumerate() {
            if index > 0 {
                text.push_str(&" ".repeat(GAP));
            }
            let align = self.columns[index].1;
            let cell = if align == Align::Name { fit_middle(cell, width) } else { fit(cell, width) };
            let padding = " ".repeat(width.saturating_sub(columns(&cell)));
            match align {
                Align::Left | Align::Name | Align::Minor | Align::Whole => text.push_str(&format!("{cell}{padding}")),
                Align::Right => text.push_str(&format!("{padding}{cell}")),
            }
        }
        text.truncate(start + text[start..].trim_end().len());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::WIDTH;

    #[test]
    fn minor_columns_go_before_a_line_of_code_cannot_be_read() {
        let mut table = Table::new(&[
            ("bytes", Align::Right),
            ("allocated at", Align::Left),
            ("module", Align::Minor),
            ("operator", Align::Minor),
            ("phase", Align::Left),
        ]);
        let line = "examples/gpt.py:26 Attention.forward";
        let texts = ["12.3 MiB, and more of it", line, "blocks.3.attention", "addmm +3", "optimizer"];
        table.row(texts.map(str::to_owned));
        let text = table.render();
        assert!(text.contains("py:26 Attention.forward") && text.contains("attention"), "{text}");
        assert!(!text.contains("operator") && !text.contains("addmm"), "{text}");
        assert!(text.lines().all(|line| columns(line) <= WIDTH), "{text}");
    }

    #[test]
    fn columns_are_aligned_and_lines_fit() {
        let mut table = Table::new(&[("bytes", Align::Right), ("line", Align::Left), ("n", Align::Right)]);
        table.row(["5".into(), "x".repeat(200), "1".into()]);
        table.row(["1234".into(), "short".into()]);
        table.row(["1".into(), "训练".into(), "1".into()]);
        let text = table.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| columns(line) <= WIDTH), "{text}");
        assert_eq!(columns(lines[3]), columns(lines[1]), "wide characters do not shift columns");
        assert_eq!(lines[2], "   1234  short");
        assert!(lines[1].contains("..xxx"));
    }
}

//! Cells with call stacks. The caller says how to print them; each stack is printed and made ready for its format once,
//! as far as memory allows.

use msmemscope_dump::cells::{Prepared, PreparedCell};
use msmemscope_event::StackId;
use rustc_hash::FxHashMap;

/// Prints call stacks of one recording.
pub trait StackFormatter: Send + Sync {
    /// Appends the text of a native stack, one frame per line, innermost first. The wall clock time
    /// is that of the first event with this stack.
    fn native(&self, stack: StackId, timestamp_ns: u64, out: &mut String);

    /// Appends the text of a Python stack.
    fn python(&self, stack: StackId, timestamp_ns: u64, out: &mut String);

    /// Which of the ways to print stacks is in force at this time. Another way may print the same stack differently.
    fn way(&self, _timestamp_ns: u64) -> usize {
        0
    }
}

/// Bytes of cells of one kind that are kept before the older half of them goes.
const GENERATION_BYTES: usize = 32 << 20;

/// Cells with stacks, printed and made ready for a format. Those that were not asked for lately are forgotten when they
/// become too many.
pub(crate) struct StackCells<'a> {
    formatter: Option<&'a dyn StackFormatter>,
    /// Turns the text of a stack into what the format can hold.
    prepare: fn(String) -> PreparedCell,
    native: Generations,
    python: Generations,
    /// The way that they are printed in, see [`StackFormatter::way`].
    way: usize,
}

impl<'a> StackCells<'a> {
    pub(crate) fn new(formatter: Option<&'a dyn StackFormatter>, prepare: fn(String) -> PreparedCell) -> Self {
        Self { formatter, prepare, native: Generations::default(), python: Generations::default(), way: 0 }
    }

    /// The cells of the Python and the native stack of an event.
    pub(crate) fn cells(
        &mut self,
        python: StackId,
        native: StackId,
        timestamp_ns: u64,
    ) -> (Prepared<'_>, Prepared<'_>) {
        let Some(formatter) = self.formatter else { return Default::default() };
        let way = formatter.way(timestamp_ns);
        if std::mem::replace(&mut self.way, way) != way {
            (self.native, self.python) = Default::default();
        }
        let prepare = self.prepare;
        let python = self.python.cell(python, prepare, |out| formatter.python(python, timestamp_ns, out));
        let native = self.native.cell(native, prepare, |out| formatter.native(native, timestamp_ns, out));
        (python, native)
    }
}

/// Two generations of cells: what is asked for moves into the younger one; when that is full, it becomes the older one.
#[derive(Default)]
struct Generations {
    young: FxHashMap<StackId, PreparedCell>,
    old: FxHashMap<StackId, PreparedCell>,
    young_bytes: usize,
}

impl Generations {
    #[inline]
    fn cell(
        &mut self,
        stack: StackId,
        prepare: fn(String) -> PreparedCell,
        print: impl FnOnce(&mut String),
    ) -> Prepared<'_> {
        if !stack.is_some() {
            return Prepared::default();
        }
        if self.young_bytes > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        let (old, bytes) = (&mut self.old, &mut self.young_bytes);
        let cell = self.young.entry(stack).or_insert_with(|| {
            let cell = old.remove(&stack).unwrap_or_else(|| {
                let mut text = String::new();
                print(&mut text);
                prepare(text)
            });
            *bytes += cell.len();
            cell
        });
        cell.as_prepared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use msmemscope_dump::csv_writer;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    const STACK_BYTES: usize = 1 << 20;

    impl StackFormatter for Counting {
        fn native(&self, _: StackId, _: u64, out: &mut String) {
            self.0.fetch_add(1, Ordering::Relaxed);
            out.push_str(&" ".repeat(STACK_BYTES));
        }

        fn python(&self, _: StackId, _: u64, _: &mut String) {}
    }

    #[test]
    fn stacks_that_come_again_are_printed_once_however_many_others_come_once() {
        let formatter = Counting::default();
        let mut cells = StackCells::new(Some(&formatter), csv_writer::prepared);
        for other in 100..200 {
            for frequent in 1..5 {
                cells.cells(StackId::NONE, StackId(frequent), 0);
            }
            cells.cells(StackId::NONE, StackId(other), 0);
            let kept = cells.native.young.len() + cells.native.old.len();
            assert!(kept <= 2 * (GENERATION_BYTES / STACK_BYTES + 2), "{kept} are kept");
        }
        assert_eq!(formatter.0.into_inner(), 104);
    }
}

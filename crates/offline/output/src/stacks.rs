//! Text of call stacks. The caller says how to print them; each stack is printed once.

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

const LARGEST_CACHE_BYTES: usize = 64 << 20;

/// Texts that were printed already, forgotten all together when they become too many.
pub(crate) struct StackTexts<'a> {
    formatter: Option<&'a dyn StackFormatter>,
    native: FxHashMap<StackId, Box<str>>,
    python: FxHashMap<StackId, Box<str>>,
    bytes: usize,
    way: usize,
}

impl<'a> StackTexts<'a> {
    pub(crate) fn new(formatter: Option<&'a dyn StackFormatter>) -> Self {
        Self { formatter, native: FxHashMap::default(), python: FxHashMap::default(), bytes: 0, way: 0 }
    }

    /// Texts of the Python and the native stack of an event.
    pub(crate) fn texts(&mut self, python: StackId, native: StackId, timestamp_ns: u64) -> (&str, &str) {
        let Some(formatter) = self.formatter else { return ("", "") };
        let way = formatter.way(timestamp_ns);
        if self.bytes > LARGEST_CACHE_BYTES || self.way != way {
            self.native.clear();
            self.python.clear();
            self.bytes = 0;
            self.way = way;
        }
        let bytes = &mut self.bytes;
        let python = cached(&mut self.python, python, bytes, |out| formatter.python(python, timestamp_ns, out));
        let native = cached(&mut self.native, native, bytes, |out| formatter.native(native, timestamp_ns, out));
        (python, native)
    }
}

fn cached<'m>(
    known: &'m mut FxHashMap<StackId, Box<str>>,
    stack: StackId,
    bytes: &mut usize,
    print: impl FnOnce(&mut String),
) -> &'m str {
    if !stack.is_some() {
        return "";
    }
    known.entry(stack).or_insert_with(|| {
        let mut text = String::new();
        print(&mut text);
        *bytes += text.len();
        text.into()
    })
}

//! Call sites: the stacks behind blocks, with the names of their frames.
//!
//! Python and native frames become one stack: the Python frames, and behind the innermost of them what native code
//! did on its behalf. A *line* is what people call a call site: the line of user code that stands for a stack, in the
//! words of the analyses. Several stacks may have the same.

use msmemscope_analysis::names::{Calls, SiteText};
use msmemscope_analysis::{Frame, Names};
use rustc_hash::FxHashMap;

use super::texts::{TextId, of_string, shortened};

/// A frame with its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FrameText {
    pub(crate) function: Box<str>,
    pub(crate) file: Box<str>,
    pub(crate) line: u32,
    pub(crate) is_python: bool,
}

impl FrameText {
    pub(crate) fn new(frame: &Frame, is_python: bool) -> Self {
        let (function, file) = (shortened(&frame.function).into(), shortened(&frame.file).into());
        Self { function, file, line: frame.line, is_python }
    }
}

/// A call site in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: Box<str>,
    /// The frame that it names, as a place in the table of frames.
    pub(crate) frame: Option<u32>,
}

/// What blocks of one stack have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// Frames, outermost first, Python and native in one.
    pub(crate) stack: Box<[u32]>,
    /// The whole native stack, innermost first.
    pub(crate) native: Box<[u32]>,
    pub(crate) line: u32,
    pub(crate) operator: TextId,
}

/// All call sites of a recording.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) frames: Vec<FrameText>,
    pub(crate) sites: Vec<Site>,
    pub(crate) lines: Vec<Line>,
}

impl Stacks {
    /// The line of a site.
    pub(crate) fn line(&self, site: u32) -> Option<&Line> {
        self.lines.get(self.sites.get(site as usize)?.line as usize)
    }

    /// The words of the line of a site.
    pub(crate) fn line_text(&self, site: u32) -> &str {
        self.line(site).map_or("", |line| &line.text)
    }

    /// The frame that a line names.
    pub(crate) fn frame_of_line(&self, line: u32) -> Option<&FrameText> {
        self.frames.get(self.lines.get(line as usize)?.frame? as usize)
    }
}

/// What tells stacks apart, and when one was seen: code may be loaded elsewhere later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteKey {
    pub(crate) calls: Calls,
    pub(crate) first_seen_ns: u64,
}

/// Gives stacks their names.
pub(crate) struct Namer<'a> {
    names: &'a dyn Names,
    stacks: Stacks,
    frames: FxHashMap<FrameText, u32>,
    lines: FxHashMap<Box<str>, u32>,
}

impl<'a> Namer<'a> {
    pub(crate) fn new(names: &'a dyn Names) -> Self {
        Self { names, stacks: Stacks::default(), frames: FxHashMap::default(), lines: FxHashMap::default() }
    }

    /// Names all sites, in order.
    pub(crate) fn name(mut self, keys: &[SiteKey]) -> Stacks {
        for key in keys {
            let text = key.calls.named(key.first_seen_ns, self.names);
            let site = self.site(&text, of_string(key.calls.operator));
            self.stacks.sites.push(site);
        }
        self.stacks
    }

    fn site(&mut self, text: &SiteText, operator: TextId) -> Site {
        let native: Box<[u32]> = text.native.iter().map(|frame| self.frame(frame, false)).collect();
        let stack = text.whole_stack().into_iter().map(|(frame, is_python)| self.frame(frame, is_python)).collect();
        let named = text.frame().map(|frame| {
            let is_python = text.python.iter().any(|known| std::ptr::eq(known, frame));
            self.frame(frame, is_python)
        });
        let line = match self.lines.get(text.line.as_str()) {
            Some(&line) => line,
            None => {
                self.stacks.lines.push(Line { text: shortened(&text.line).into(), frame: named });
                let line = self.stacks.lines.len() as u32 - 1;
                self.lines.insert(text.line.as_str().into(), line);
                line
            }
        };
        Site { stack, native, line, operator }
    }

    fn frame(&mut self, frame: &Frame, is_python: bool) -> u32 {
        let text = FrameText::new(frame, is_python);
        let next = self.frames.len() as u32;
        *self.frames.entry(text).or_insert_with_key(|text| {
            self.stacks.frames.push(text.clone());
            next
        })
    }
}

//! Where definitions go.

use msmemscope_event::{CodeId, StackId, StringId};

/// A code object, at first sight.
#[derive(Clone, Copy, Debug)]
pub struct CodeDefinition<'a> {
    /// Its id.
    pub id: CodeId,
    /// Qualified name; the plain name before Python 3.11.
    pub name: StringId,
    /// Source file.
    pub file: StringId,
    /// First line.
    pub first_line: u32,
    /// `major << 8 | minor` of the interpreter.
    pub python_version: u32,
    /// The interpreter's line table, as it is.
    pub line_table: &'a [u8],
}

/// Writes down definitions. A method that fails says so; the definition is then offered again when
/// it is next needed. Several threads may define the same id at the same time, with the same content.
pub trait Sink {
    /// The id of a text, which may have been seen before.
    fn string(&mut self, text: &[u8]) -> Option<StringId>;

    /// Defines a code object.
    #[must_use]
    fn define_code(&mut self, code: &CodeDefinition<'_>) -> bool;

    /// Defines a stack: pairs of little-endian 32-bit code id and instruction offset, innermost first.
    #[must_use]
    fn define_stack(&mut self, id: StackId, frames: &[u8]) -> bool;
}

//! The tables of a dataset and their columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Table {
    /// What happened, in the order of time.
    Events,
    /// Blocks with their lives.
    Blocks,
    /// Pools step by step.
    Steps,
    /// Call stacks, a row per frame.
    Stacks,
    /// Frames.
    Frames,
    /// Processes.
    Recordings,
}

/// Kinds of columns.
#[derive(Clone, Copy)]
enum Kind {
    /// A signed number of 64 bits.
    Long,
    /// A signed number of 32 bits.
    Int,
    /// Text that comes again and again.
    Word,
    /// Other text.
    Text,
    /// True or false.
    Flag,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Kind::Long => DataType::Int64,
            Kind::Int => DataType::Int32,
            Kind::Word => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Kind::Text => DataType::Utf8,
            Kind::Flag => DataType::Boolean,
        }
    }
}

impl Table {
    /// Name of its directory.
    pub(super) fn name(self) -> &'static str {
        match self {
            Table::Events => "events",
            Table::Blocks => "blocks",
            Table::Steps => "steps",
            Table::Stacks => "stacks",
            Table::Frames => "frames",
            Table::Recordings => "recordings",
        }
    }

    /// Its columns; those that may be empty are marked.
    pub(super) fn schema(self) -> Arc<Schema> {
        use Kind::{Flag, Int, Long, Text, Word};
        let columns: &[(&str, Kind, bool)] = match self {
            Table::Events => &[
                ("process_id", Int, false),
                ("time_ns", Long, false),
                ("thread_id", Int, false),
                ("step", Long, false),
                ("event", Word, false),
                ("event_type", Word, false),
                ("name", Word, true),
                ("allocation_id", Long, true),
                ("address", Long, true),
                ("size_bytes", Long, true),
                ("used_bytes", Long, true),
                ("reserved_bytes", Long, true),
                ("stack_id", Long, true),
            ],
            Table::Blocks => &[
                ("process_id", Int, false),
                ("allocation_id", Long, false),
                ("pool", Word, false),
                ("owner", Word, true),
                ("operator", Word, true),
                ("address", Long, false),
                ("size_bytes", Long, false),
                ("allocated_ns", Long, false),
                ("freed_ns", Long, true),
                ("allocated_step", Long, false),
                ("freed_step", Long, true),
                ("device_step", Long, false),
                ("thread_id", Int, false),
                ("stack_id", Long, true),
                ("is_shadow", Flag, false),
            ],
            Table::Steps => &[
                ("process_id", Int, false),
                ("pool", Word, false),
                ("step", Long, false),
                ("began_ns", Long, false),
                ("ended_ns", Long, false),
                ("peak_bytes", Long, false),
                ("end_bytes", Long, false),
            ],
            Table::Stacks => &[
                ("process_id", Int, false),
                ("stack_id", Long, false),
                ("position", Int, false),
                ("frame_id", Long, true),
                ("call_site", Word, false),
            ],
            Table::Frames => &[
                ("process_id", Int, false),
                ("frame_id", Long, false),
                ("function", Text, false),
                ("file", Word, false),
                ("line", Int, false),
            ],
            Table::Recordings => &[
                ("process_id", Int, false),
                ("schema_version", Int, false),
                ("host", Text, false),
                ("command", Text, false),
                ("local_rank", Int, true),
                ("world_size", Int, true),
                ("start_ns", Long, false),
                ("end_ns", Long, false),
                ("events", Long, false),
                ("blocks", Long, false),
                ("steps", Long, false),
                ("lost_events", Long, false),
                ("is_complete", Flag, false),
            ],
        };
        let field = |(name, kind, is_optional): &(&str, Kind, bool)| Field::new(*name, kind.data_type(), *is_optional);
        Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
    }
}

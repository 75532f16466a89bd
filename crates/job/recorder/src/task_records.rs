//! Records in which a card tells that it starts or has finished a task, byte by byte.

/// A card starts or has finished a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Starts, else finished.
    pub is_start: bool,
    /// Stream, or [`UNKNOWN_STREAM`].
    pub stream_id: u32,
    /// Task within the stream, or within the card if the stream is unknown.
    pub task_id: u32,
    /// When, by the card's counter.
    pub ticks: u64,
}

/// Cards that number tasks for all streams together do not say which stream it was.
pub const UNKNOWN_STREAM: u32 = u32::MAX;

/// How a card writes its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// 64 bytes.
    Long,
    /// 32 bytes, since the 950.
    Short,
}

const FUNCTION_START: u32 = 0;
const FUNCTION_END: u32 = 1;

impl Form {
    /// The form of a chip.
    pub fn of_chip(name: &[u8]) -> Self {
        let says = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
        if says(b"950") || says(b"960") { Self::Short } else { Self::Long }
    }

    /// Size of a record.
    pub fn record_bytes(self) -> usize {
        match self {
            Self::Long => 64,
            Self::Short => 32,
        }
    }

    /// What a record says, if it is about the start or end of a task. `is_expanded` says how ids are packed.
    pub fn decode(self, record: &[u8], is_expanded: bool) -> Option<TaskRecord> {
        let u32_at = |at: usize| {
            record.get(at..at + 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let (first, ids) = (u32_at(0)?, u32_at(4)?);
        let ticks = u64::from(u32_at(8)?) | u64::from(u32_at(12)?) << 32;
        let is_start = match first & 0x3f {
            FUNCTION_START => true,
            FUNCTION_END => false,
            _ => return None,
        };
        let (stream_id, task_id) = match self {
            Self::Short => (UNKNOWN_STREAM, ids),
            Self::Long => {
                let (stream, task) = (ids & 0xffff, ids >> 16);
                if is_expanded { unpack_expanded(stream, task, first >> 10 & 0x3f) } else { unpack(stream, task) }
            }
        };
        Some(TaskRecord { is_start, stream_id, task_id, ticks })
    }
}

/// Stream and task from the two halves of the ids.
fn unpack(stream: u32, task: u32) -> (u32, u32) {
    if stream & 0x1000 != 0 {
        (stream % 2048, task & 0x1fff | stream & 0xe000)
    } else if stream & 0x2000 != 0 {
        ((task & 0xfff) % 2048, stream & 0xfff | task & 0xf000)
    } else {
        (stream % 2048, task)
    }
}

/// The same where ids of streams have more bits; entries of events are never packed differently.
fn unpack_expanded(stream: u32, task: u32, queue_entry_type: u32) -> (u32, u32) {
    let is_event = matches!(queue_entry_type, 3 | 4);
    if !is_event && stream & 0x8000 != 0 {
        (task & 0x7fff, task & 0x8000 | stream & 0x7fff)
    } else {
        (stream & 0x7fff, task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(first: u32, stream: u16, task: u16) -> Vec<u8> {
        let mut record = vec![0; 64];
        record[0..4].copy_from_slice(&first.to_le_bytes());
        record[4..6].copy_from_slice(&stream.to_le_bytes());
        record[6..8].copy_from_slice(&task.to_le_bytes());
        record[8..16].copy_from_slice(&0x1_0000_0002u64.to_le_bytes());
        record
    }

    fn ids(first: u32, stream: u16, task: u16, is_expanded: bool) -> (u32, u32) {
        let record = Form::Long.decode(&long(first, stream, task), is_expanded).expect("a record of a task");
        (record.stream_id, record.task_id)
    }

    #[test]
    fn ids_are_unpacked_in_all_ways() {
        assert_eq!(ids(0, 5, 0xffff, false), (5, 0xffff));
        assert_eq!(ids(0, 0x1000 | 0xe000 | 7, 0x1234, false), (7, 0xf234));
        assert_eq!(ids(0, 0x2000 | 0x234, 0xf000 | 9, false), (9, 0xf234));
        assert_eq!(ids(0, 0x7ffe, 3, true), (0x7ffe, 3));
        assert_eq!(ids(0, 0x8000 | 0x1234, 0x8000 | 9, true), (9, 0x9234));
        assert_eq!(ids(3 << 10, 0x8001, 9, true), (1, 9));
    }

    #[test]
    fn starts_and_ends_are_told_from_the_rest() {
        let start = Form::Long.decode(&long(0x6bd3_0000, 1, 2), false);
        assert_eq!(start, Some(TaskRecord { is_start: true, stream_id: 1, task_id: 2, ticks: 0x1_0000_0002 }));
        assert!(Form::Long.decode(&long(0x6bd3_0001, 1, 2), false).is_some_and(|record| !record.is_start));
        assert_eq!(Form::Long.decode(&long(0x6bd3_0002, 1, 2), false), None);
        assert_eq!(Form::Long.decode(&long(0, 1, 2)[..12], false), None);
    }

    #[test]
    fn newer_chips_number_tasks_for_the_whole_card() {
        let mut record = long(1, 0, 0);
        record[4..8].copy_from_slice(&0x0012_3456u32.to_le_bytes());
        let end = Form::of_chip(b"Ascend950PR").decode(&record[..32], true).expect("a record of a task");
        assert_eq!((end.is_start, end.stream_id, end.task_id), (false, UNKNOWN_STREAM, 0x12_3456));
        assert_eq!(Form::of_chip(b"Ascend910B1"), Form::Long);
    }
}

//! Chunks that are read to be replaced by fewer, and which of their records can go.
//!
//! Records are encoded relative to those before them, so a chunk is read from its start. Where reading can go on is
//! noted every so many records: of the few that stay in the end, none costs more than its neighbours.

use msmemscope_event::Record;

use crate::codec::{self, CodecState, Decoded};

/// Records from one place at which reading can go on to the next; as many as a word has bits.
const GROUP_RECORDS: usize = u64::BITS as usize;

/// Where a record is: position among the chunks looked at, number in the chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) chunk: u32,
    pub(crate) record: u32,
}

/// Where a group of records begins.
#[derive(Clone, Copy)]
struct GroupStart {
    offset: usize,
    state: CodecState,
}

/// A chunk whose records are looked at.
pub(crate) struct ReadChunk {
    /// Position in the file.
    pub(crate) index: u32,
    /// Whether it is about to be replaced, or only looked at.
    pub(crate) is_replaced: bool,
    /// Its records.
    payload: Vec<u8>,
    groups: Vec<GroupStart>,
    records: usize,
}

/// What the first look at a chunk tells.
pub(crate) struct Survey {
    /// Whether all records can be understood; those behind one that cannot are not seen.
    pub(crate) is_sound: bool,
    /// Time of the latest record.
    pub(crate) latest_ns: u64,
}

impl ReadChunk {
    /// A chunk whose first record is relative to this time and of this thread. Its records are not known yet.
    pub(crate) fn new(index: u32, base_monotonic_ns: u64, thread_id: u32, payload: Vec<u8>) -> Self {
        let start = GroupStart { offset: 0, state: CodecState::new(base_monotonic_ns, thread_id) };
        Self { index, is_replaced: false, payload, groups: vec![start], records: 0 }
    }

    /// The thread of its first record.
    pub(crate) fn first_thread_id(&self) -> u32 {
        self.groups[0].state.thread_id
    }

    /// Goes through the records for the first time.
    pub(crate) fn survey(&mut self, mut take: impl FnMut(u32, &Record<'_>)) -> Survey {
        let GroupStart { mut offset, mut state } = self.groups[0];
        self.groups.clear();
        let mut survey = Survey { is_sound: true, latest_ns: 0 };
        let mut number = 0;
        while offset < self.payload.len() {
            if number % GROUP_RECORDS == 0 {
                self.groups.push(GroupStart { offset, state });
            }
            let Decoded::Record(record, taken_bytes) = codec::decode(&mut state, &self.payload[offset..]) else {
                survey.is_sound = false;
                break;
            };
            survey.latest_ns = survey.latest_ns.max(record.monotonic_ns);
            take(number as u32, &record);
            number += 1;
            offset += taken_bytes;
        }
        self.records = number;
        survey
    }

    /// Goes through the records that were surveyed and do not go. Returns how many do.
    pub(crate) fn for_each_kept(&self, gone: &RecordSet, mut take: impl FnMut(u32, &Record<'_>)) -> u64 {
        let mut gone_count = 0;
        for (group, start) in self.groups.iter().enumerate() {
            let first = group * GROUP_RECORDS;
            let count = (self.records - first).min(GROUP_RECORDS);
            let word = gone.words.get(group).copied().unwrap_or(0);
            gone_count += u64::from(word.count_ones());
            if word.count_ones() as usize == count {
                continue;
            }
            let GroupStart { mut offset, mut state } = *start;
            for position in 0..count {
                let Decoded::Record(record, taken_bytes) = codec::decode(&mut state, &self.payload[offset..]) else {
                    break; // Not where the survey went.
                };
                if word >> position & 1 == 0 {
                    take((first + position) as u32, &record);
                }
                offset += taken_bytes;
            }
        }
        gone_count
    }

    /// Goes through all records that were surveyed.
    pub(crate) fn for_each_record(&self, take: impl FnMut(u32, &Record<'_>)) {
        self.for_each_kept(&RecordSet::default(), take);
    }
}

/// Some of the records of a chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordSet {
    words: Vec<u64>,
}

impl RecordSet {
    /// Adds the record of this number, which may be in it.
    #[inline]
    pub(crate) fn insert(&mut self, record: u32) {
        let word = record as usize / GROUP_RECORDS;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (record as usize % GROUP_RECORDS);
    }
}

#[cfg(test)]
mod tests {
    use msmemscope_event::{Fact, StackId, StringId};

    use super::*;

    #[test]
    fn what_is_kept_is_read_as_it_was_written() {
        let (mut payload, mut state) = (Vec::new(), CodecState::new(50, 7));
        for number in 0..1000u64 {
            let fact = Fact::LabelAddress { address: number << 30, level: 1, label: StringId(number as u32) };
            let record = Record {
                monotonic_ns: 100 + number,
                thread_id: 7 + (number / 300) as u32,
                native_stack: StackId::NONE,
                python_stack: StackId::NONE,
                fact,
            };
            codec::append_to(&mut payload, &mut state, &record);
        }
        let mut chunk = ReadChunk::new(0, 50, 7, payload);
        let mut written = Vec::new();
        let survey = chunk.survey(|number, record| written.push((number, record.monotonic_ns, record.thread_id)));
        assert!(survey.is_sound && survey.latest_ns == 1099);
        assert_eq!(written.len(), 1003, "three say that another thread goes on");
        let mut gone = RecordSet::default();
        let is_gone = |number: u32| !(100..=101).contains(&number) && number % 200 != 63 && number != 1002;
        written.iter().filter(|(number, ..)| is_gone(*number)).for_each(|(number, ..)| gone.insert(*number));
        let mut kept = Vec::new();
        let gone_count =
            chunk.for_each_kept(&gone, |number, record| kept.push((number, record.monotonic_ns, record.thread_id)));
        assert_eq!(gone_count as usize + kept.len(), written.len());
        written.retain(|(number, ..)| !is_gone(*number));
        assert_eq!(kept, written);
    }
}

//! Makes room in a file that has reached its limit: chunks with blocks that came and went before recording began, or in
//! a pause of it, are replaced by fewer that hold what was still alive at the end of that time and everything else.
//!
//! In a file that keeps only the newest (a flight recorder) the oldest chunks are replaced by what is left of the past:
//! see [`crate::past`].
//!
//! A round is invisible until it is complete. New chunks carry its number, the chunks they replace are marked with it,
//! and only then the header counts it: a reader leaves out chunks made in a round that is not counted and chunks
//! replaced in one that is. Whatever kills the process in between, every record is in the file exactly once.
//!
//! It runs in the thread that found no room, a bounded number of chunks at a time; other threads go on writing.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use msmemscope_event::{Fact, Record, StackId, StringId};

use crate::chunk_image::ChunkImage;
use crate::chunk_table::{ChunkNote, ChunkUse};
use crate::layout::{CHUNK_BYTES, CHUNK_HEADER_BYTES, chunk_file_offset, chunk_offset, file_offset};
use crate::passing_blocks::{pause_at, records_of_passing_blocks};
use crate::past::records_of_the_past;
use crate::read_chunk::{Place, ReadChunk, RecordSet};
use crate::reader::{u32_at, u64_at};
use crate::writer::{Descriptor, TraceFile};

/// Chunks filled by threads that a round takes on at least, and at most.
const SMALLEST_ROUND: usize = 16;
const LARGEST_ROUND: usize = 128;
/// Chunks that a round of the past takes on at least: few, so that what is noted of them fits the processor's caches.
const SMALLEST_ROUND_OF_THE_PAST: usize = 4;
/// Chunks that a round makes at most; more would be read again and again.
pub(crate) const LARGEST_RESULT: u32 = 128;
/// A round must free at least this share of the chunks it takes on, or it is not worth its time.
const SMALLEST_GAIN: usize = 4;
/// Shares of the filled chunks that a round of the past takes on, one after the other: half of them stay as they are,
/// unless that does not help.
const OLDEST_SHARES: [usize; 2] = [2, 1];
/// What is wiped of a chunk that is replaced, in this order, so that a reader sees a replaced chunk, an empty one, or none.
const VACATED_IN_ORDER: [usize; 4] =
    [chunk_offset::COMMITTED_BYTES, chunk_offset::MAGIC, chunk_offset::REPLACED_IN, chunk_offset::MADE_IN];

impl TraceFile {
    /// Replaces old chunks by fewer ones. `pauses` are times, in order, of each of which only what is alive at its end
    /// matters; the last may reach into the future. Returns how many chunks can be handed out again; zero if it is not
    /// worth it, or if something failed: then chunks may be marked with the number of the round, and no other must
    /// follow.
    ///
    /// A file that keeps only the newest does not look at pauses; where it gives zero, other rounds may follow.
    ///
    /// Only one thread at a time may be in here.
    pub fn compact(&self, pauses: &[Range<u64>], now_ns: u64) -> u32 {
        if !self.can_compact() {
            return 0;
        }
        let Ok(descriptor) = self.open() else { return 0 };
        if self.keeps_newest() {
            return self.forget_oldest(&descriptor);
        }
        while let Some(round) = Round::choose(self, pauses, now_ns) {
            match self.carry_out(&round, &descriptor) {
                // Full of what matters: not looked at again.
                Ok(0) => self.note_dense_until(round.end_ns),
                result => return result.unwrap_or(0),
            }
        }
        0
    }

    /// Replaces the oldest chunks by what is left of the past. If that is nearly everything, more of them are taken on.
    fn forget_oldest(&self, descriptor: &Descriptor) -> u32 {
        for share in OLDEST_SHARES {
            let Some(round) = Round::of_the_past(self, share) else { return 0 };
            match self.carry_out(&round, descriptor) {
                Ok(0) => continue,
                result => return result.unwrap_or(0),
            }
        }
        0
    }

    fn carry_out(&self, round: &Round, descriptor: &Descriptor) -> Result<u32, i32> {
        let mut chunks = round.read(descriptor)?;
        let superfluous = match round.is_of_the_past {
            true => records_of_the_past(&mut chunks, round.filled.len(), round.end_ns),
            false => round.superfluous_in_pauses(&mut chunks),
        };
        let (images, records_left_out) = rewrite(&chunks, &superfluous.ok_or(libc::ENOMEM)?);
        let replaced: Vec<u32> = chunks.iter().filter(|chunk| chunk.is_replaced).map(|chunk| chunk.index).collect();
        let gain = replaced.len().saturating_sub(images.len());
        if gain == 0 || gain < round.worth_while(replaced.len()) || images.len() > LARGEST_RESULT as usize {
            return Ok(0);
        }
        let number = self.header_u32(file_offset::COMPACTIONS).load(Ordering::Relaxed) + 1;
        let Some(made) = self.write_images(images, number, descriptor) else { return Ok(0) };
        for &index in &replaced {
            descriptor.write_at(&number.to_le_bytes(), header_field(index, chunk_offset::REPLACED_IN))?;
        }
        self.header_u64(file_offset::RECORDS_LEFT_OUT).fetch_add(records_left_out, Ordering::Relaxed);
        if round.is_of_the_past {
            // Before the round counts: until then, more is there than is said.
            self.header_u64(file_offset::COMPLETE_SINCE_NS).store(round.end_ns, Ordering::Relaxed);
        }
        self.header_u32(file_offset::COMPACTIONS).store(number, Ordering::Release);
        for (index, begin_ns) in made.into_iter().zip(round.begin_ns..) {
            self.table().compacted(index, begin_ns, round.end_ns); // In order, for the next round.
        }
        for &index in &replaced {
            for field in VACATED_IN_ORDER {
                descriptor.write_at(&[0; 4], header_field(index, field))?;
            }
            self.table().vacated(index);
        }
        Ok(gain as u32)
    }

    /// Writes the new chunks. Those of a round that is given up remain unseen; their places can be used again.
    fn write_images(&self, images: Vec<ChunkImage>, number: u32, descriptor: &Descriptor) -> Option<Vec<u32>> {
        let mut made = Vec::new();
        let are_written = images.into_iter().all(|image| {
            let Some(index) = self.claim_any_index() else { return false };
            made.push(index);
            self.write_chunk(index, &image.into_sealed(index, number), descriptor).is_ok()
        });
        if are_written {
            return Some(made);
        }
        for index in made {
            if descriptor.write_at(&[0; CHUNK_HEADER_BYTES], chunk_file_offset(index)).is_ok() {
                self.table().vacated(index);
            }
        }
        None
    }

    /// The header comes last: without it a reader takes the chunk for one that was never used.
    fn write_chunk(&self, index: u32, bytes: &[u8], descriptor: &Descriptor) -> Result<(), i32> {
        let offset = chunk_file_offset(index);
        let (header, payload) = bytes.split_at(CHUNK_HEADER_BYTES);
        descriptor.reserve(offset, CHUNK_BYTES)?;
        descriptor.write_at(payload, offset + CHUNK_HEADER_BYTES as u64)?;
        descriptor.write_at(header, offset)?;
        self.note_handed_out(index);
        Ok(())
    }
}

fn header_field(index: u32, offset: usize) -> u64 {
    chunk_file_offset(index) + offset as u64
}

/// What one round works on.
struct Round {
    /// Of everything before its end, only what is left of the past stays.
    is_of_the_past: bool,
    /// Every allocation in these times is in one of the chunks.
    pauses: Vec<Range<u64>>,
    /// The first of the chunks to be replaced begins.
    begin_ns: u64,
    /// The first chunk that is left to the next round begins.
    end_ns: u64,
    /// To be replaced if they end before that.
    filled: Vec<ChunkNote>,
    /// Only looked at.
    others: Vec<ChunkNote>,
}

impl Round {
    /// The oldest chunks that were filled since the first pause and not looked at yet; nothing if there are none.
    fn choose(file: &TraceFile, pauses: &[Range<u64>], now_ns: u64) -> Option<Self> {
        let oldest_ns = pauses.first()?.start.max(file.dense_until_ns());
        let notes: Vec<ChunkNote> = file.table().notes(file.chunks_handed_out()).collect();
        let is_filled = |note: &ChunkNote| {
            let has_pause = pauses[pauses.partition_point(|pause| pause.end <= note.begin_ns)..]
                .first()
                .is_some_and(|pause| pause.start <= note.end_ns);
            note.usage == ChunkUse::Sealed && note.begin_ns >= oldest_ns && has_pause
        };
        let first_ns = notes.iter().filter(|note| is_filled(note)).map(|note| note.begin_ns).min()?;
        // A pause may go on after a round: what that round made of its start is compacted again with the rest.
        let start_ns = pause_at(pauses, first_ns).map_or(first_ns, |pause| pause.start);
        let (mut compacted, mut filled, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for note in notes {
            match note.usage {
                ChunkUse::Compacted if note.end_ns > start_ns => compacted.push(note),
                ChunkUse::Sealed if is_filled(&note) => filled.push(note),
                ChunkUse::Sealed if note.end_ns >= start_ns => others.push(note),
                ChunkUse::Open => others.push(note),
                _ => {}
            }
        }
        compacted.sort_unstable_by_key(|note| note.begin_ns);
        filled.sort_unstable_by_key(|note| note.begin_ns);
        // Threads fill their chunks side by side: those that end before the next begins must be among these.
        let size = (SMALLEST_ROUND + 2 * others.len() + compacted.len()).min(LARGEST_ROUND);
        let end_ns = filled.get(size).map_or(now_ns, |next| next.begin_ns);
        filled.truncate(size);
        compacted.append(&mut filled);
        let seen = |pause: &Range<u64>| pause.start..pause.end.min(end_ns);
        Some(Self {
            is_of_the_past: false,
            pauses: pauses
                .iter()
                .filter(|pause| pause.end > start_ns)
                .map(seen)
                .filter(|seen| !seen.is_empty())
                .collect(),
            begin_ns: compacted.iter().map(|note| note.begin_ns).min().unwrap_or(start_ns),
            end_ns,
            filled: compacted,
            others,
        })
    }

    /// The chunks that ended first, up to one of so many, and what earlier rounds made of those before them.
    fn of_the_past(file: &TraceFile, share: usize) -> Option<Self> {
        let (mut compacted, mut sealed, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for note in file.table().notes(file.chunks_handed_out()) {
            match note.usage {
                ChunkUse::Compacted => compacted.push(note),
                ChunkUse::Sealed => sealed.push(note),
                _ => others.push(note),
            }
        }
        compacted.sort_unstable_by_key(|note| note.begin_ns);
        sealed.sort_unstable_by_key(|note| note.end_ns);
        // The more is read again, the more must be gained.
        let read_besides = compacted.len() + 2 * others.len();
        let size = (SMALLEST_ROUND_OF_THE_PAST + read_besides).min(LARGEST_ROUND).min(sealed.len().div_ceil(share));
        let rest = sealed.split_off(size);
        let begin_ns = compacted.iter().chain(&sealed).map(|note| note.begin_ns).min()?;
        let latest_ns = sealed.iter().map(|note| note.end_ns).max()?;
        let end_ns = compacted.iter().map(|note| note.end_ns).max().unwrap_or(0).max(latest_ns + 1);
        others.extend(rest.into_iter().filter(|note| note.begin_ns < end_ns));
        compacted.append(&mut sealed);
        Some(Self { is_of_the_past: true, pauses: Vec::new(), begin_ns, end_ns, filled: compacted, others })
    }

    /// Chunks that must be gained of those that are replaced, or it is not worth the time. What earlier rounds made of the
    /// past is only carried along.
    fn worth_while(&self, replaced: usize) -> usize {
        let carried = self.filled.iter().filter(|note| self.is_of_the_past && note.usage == ChunkUse::Compacted);
        replaced.saturating_sub(carried.count()) / SMALLEST_GAIN
    }

    /// Reads the chunks, first those to be replaced; those still being written come last: what the others mention is in
    /// them by then.
    fn read(&self, descriptor: &Descriptor) -> Result<Vec<ReadChunk>, i32> {
        self.filled.iter().chain(&self.others).map(|note| read_chunk(descriptor, note.index)).collect()
    }

    /// Of every chunk, the records that pauses make superfluous: those of blocks that came and went, and of regions in
    /// which nothing else happened. Says which chunks are replaced.
    fn superfluous_in_pauses(&self, chunks: &mut [ReadChunk]) -> Option<Vec<RecordSet>> {
        let mut has_regions = false;
        for (position, chunk) in chunks.iter_mut().enumerate() {
            let mut starts_regions = false;
            let survey = chunk.survey(|_, record| starts_regions |= matches!(record.fact, Fact::LabelPush { .. }));
            if position < self.filled.len() {
                chunk.is_replaced = survey.is_sound && survey.latest_ns < self.end_ns;
                has_regions |= starts_regions;
            }
        }
        let mut superfluous = records_of_passing_blocks(chunks, &self.pauses)?;
        if has_regions {
            for place in unused_regions(chunks, &superfluous, &self.pauses) {
                superfluous[place.chunk as usize].insert(place.record);
            }
        }
        Some(superfluous)
    }
}

fn read_chunk(descriptor: &Descriptor, index: u32) -> Result<ReadChunk, i32> {
    let mut header = [0; CHUNK_HEADER_BYTES];
    descriptor.read_at(&mut header, chunk_file_offset(index))?;
    let committed_bytes = u32_at(&header, chunk_offset::COMMITTED_BYTES) as usize;
    let payload_bytes = committed_bytes.min(CHUNK_BYTES - CHUNK_HEADER_BYTES);
    let mut payload = Vec::new();
    payload.try_reserve_exact(payload_bytes).map_err(|_| libc::ENOMEM)?;
    payload.resize(payload_bytes, 0);
    descriptor.read_at(&mut payload, chunk_file_offset(index) + CHUNK_HEADER_BYTES as u64)?;
    let base_monotonic_ns = u64_at(&header, chunk_offset::BASE_MONOTONIC_NS);
    Ok(ReadChunk::new(index, base_monotonic_ns, u32_at(&header, chunk_offset::THREAD_ID), payload))
}

/// New chunks with what is to be kept of those that are replaced, and how many records are not.
fn rewrite(chunks: &[ReadChunk], superfluous: &[RecordSet]) -> (Vec<ChunkImage>, u64) {
    let mut images: Vec<ChunkImage> = Vec::new();
    let mut left_out = 0;
    for (chunk, superfluous) in chunks.iter().zip(superfluous).filter(|(chunk, _)| chunk.is_replaced) {
        left_out += chunk.for_each_kept(superfluous, |_, record| {
            if !matches!(record.fact, Fact::Thread { .. }) {
                add(&mut images, record);
            }
        });
    }
    (images, left_out)
}

fn add(images: &mut Vec<ChunkImage>, record: &Record<'_>) {
    if let Some(image) = images.last_mut()
        && append(image, record)
    {
        return;
    }
    let mut image = ChunkImage::new(record.thread_id, record.monotonic_ns);
    append(&mut image, record);
    images.push(image);
}

fn append(image: &mut ChunkImage, record: &Record<'_>) -> bool {
    let thread = Fact::Thread { thread_id: record.thread_id };
    let is_known = image.thread_id() == record.thread_id
        || image.append(record.monotonic_ns, StackId::NONE, StackId::NONE, &thread);
    is_known && image.append(record.monotonic_ns, record.native_stack, record.python_stack, &record.fact)
}

/// Starts and ends of labelled regions in which a thread did nothing that is kept.
///
/// Chunks are not in the order of time: those that are only looked at come last, and what a thread did in a region may lie
/// in one of them. So regions are found first, by the times of their starts and ends, and then what lies in them.
fn unused_regions(chunks: &[ReadChunk], superfluous: &[RecordSet], pauses: &[Range<u64>]) -> Vec<Place> {
    let mut labels: HashMap<u32, Vec<LabelChange>> = HashMap::new();
    for_each_kept(chunks, superfluous, |place, is_replaced, record| {
        let (is_start, level, label) = match record.fact {
            Fact::LabelPush { level, label } => (true, level, label),
            Fact::LabelPop { level, label } => (false, level, label),
            _ => return,
        };
        let monotonic_ns = record.monotonic_ns;
        let can_go = is_replaced && pause_at(pauses, monotonic_ns).is_some();
        labels.entry(record.thread_id).or_default().push(LabelChange {
            monotonic_ns,
            place,
            is_start,
            what: (level, label),
            can_go,
        });
    });
    let mut regions: HashMap<u32, Regions> =
        labels.into_iter().map(|(thread_id, changes)| (thread_id, Regions::of(changes))).collect();
    for_each_kept(chunks, superfluous, |_, _, record| {
        let is_label = matches!(record.fact, Fact::LabelPush { .. } | Fact::LabelPop { .. });
        if !is_label && let Some(regions) = regions.get_mut(&record.thread_id) {
            regions.note_use(record.monotonic_ns);
        }
    });
    regions.values().flat_map(Regions::unused).collect()
}

/// Calls `take` with every record that stays: where it is, whether its chunk is replaced, and itself.
fn for_each_kept(chunks: &[ReadChunk], superfluous: &[RecordSet], mut take: impl FnMut(Place, bool, &Record<'_>)) {
    for ((position, chunk), superfluous) in (0u32..).zip(chunks).zip(superfluous) {
        chunk.for_each_kept(superfluous, |number, record| {
            if !matches!(record.fact, Fact::Thread { .. }) {
                take(Place { chunk: position, record: number }, chunk.is_replaced, record);
            }
        });
    }
}

/// A labelled region starts or ends.
struct LabelChange {
    monotonic_ns: u64,
    place: Place,
    is_start: bool,
    what: (u32, StringId),
    /// Whether it can be left out at all.
    can_go: bool,
}

/// A labelled region that can be left out if nothing is in it.
struct LabelledRegion {
    start: LabelChange,
    /// None as long as its end is not known; it stays then.
    end: Option<LabelChange>,
    /// The region around it.
    parent: Option<usize>,
    is_used: bool,
}

/// The regions of a thread, in the order of their starts.
struct Regions(Vec<LabelledRegion>);

impl Regions {
    /// Pairs starts with ends. Where these do not fit together, or one of them stays, so do the regions around it.
    fn of(mut changes: Vec<LabelChange>) -> Self {
        changes.sort_by_key(|change| change.monotonic_ns);
        let mut regions: Vec<LabelledRegion> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for change in changes {
            let innermost = open.last().copied();
            if change.is_start && change.can_go {
                open.push(regions.len());
                regions.push(LabelledRegion { start: change, end: None, parent: innermost, is_used: false });
            } else if let Some(region) = innermost.filter(|_| !change.is_start && change.can_go)
                && regions[region].start.what == change.what
            {
                open.pop();
                regions[region].end = Some(change);
            } else {
                open.clear();
            }
        }
        Self(regions)
    }

    /// Something that stays was done at this time: all regions around it stay.
    fn note_use(&mut self, monotonic_ns: u64) {
        let mut next = self.0.partition_point(|region| region.start.monotonic_ns <= monotonic_ns).checked_sub(1);
        while let Some(index) = next {
            let region = &mut self.0[index];
            let has_ended = region.end.as_ref().is_some_and(|end| end.monotonic_ns < monotonic_ns);
            if !has_ended {
                if region.is_used {
                    return; // And so are those around it.
                }
                region.is_used = true;
            }
            next = region.parent;
        }
    }

    fn unused(&self) -> impl Iterator<Item = Place> {
        let unused = self.0.iter().filter(|region| !region.is_used);
        unused.filter_map(|region| Some([region.start.place, region.end.as_ref()?.place])).flatten()
    }
}

//! Texts that get a number: written to the trace once, named by number from then on.
//!
//! The table only grows and is never locked. It outlives a fork: the recording of a child begins
//! with all texts known so far, because both keep using the same numbers.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use msmemscope_event::{Fact, LossReason, StringId};
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;
use xxhash_rust::xxh3::xxh3_64;

use crate::{losses, process, thread};

const SLOTS: usize = 1 << 18;
/// Entries beyond this would make searches long.
const MOST_TEXTS: u32 = (SLOTS / 4 * 3) as u32;

/// A text with its number. Never freed.
pub struct Text {
    hash: u64,
    id: StringId,
    bytes: Box<[u8]>,
    /// The text known before this one.
    earlier: AtomicPtr<Text>,
}

static TABLE: [AtomicPtr<Text>; SLOTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS];
static LATEST: AtomicPtr<Text> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Text {
    /// Its number.
    pub fn id(&self) -> StringId {
        self.id
    }
}

/// The number of a text; none for the empty text and when there are too many.
pub fn intern(bytes: &[u8]) -> StringId {
    intern_text(bytes).map_or(StringId::NONE, Text::id)
}

/// The entry of a text; nothing for the empty text and when there are too many.
pub fn intern_text(bytes: &[u8]) -> Option<&'static Text> {
    if bytes.is_empty() {
        return None;
    }
    let bytes = match bytes.get(..LARGEST_TEXT_BYTES) {
        Some(cut) if cut.len() < bytes.len() => {
            losses::count(LossReason::TextCut, 1);
            cut
        }
        _ => bytes,
    };
    let hash = xxh3_64(bytes);
    let mut made: Option<Box<Text>> = None;
    for step in 0..SLOTS {
        let slot = &TABLE[(hash as usize).wrapping_add(step) % SLOTS];
        let mut entry = slot.load(Ordering::Acquire);
        if entry.is_null() {
            let text = match made.take() {
                Some(text) => text,
                None => new_text(hash, bytes)?,
            };
            let text = Box::into_raw(text);
            match slot.compare_exchange(std::ptr::null_mut(), text, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: just made, never freed from here on.
                Ok(_) => return Some(publish(unsafe { &*text })),
                Err(other) => {
                    // SAFETY: nobody else has seen it.
                    made = Some(unsafe { Box::from_raw(text) });
                    entry = other;
                }
            }
        }
        // SAFETY: entries are never freed.
        let entry = unsafe { &*entry };
        if entry.hash == hash && *entry.bytes == *bytes {
            return Some(entry);
        }
    }
    None
}

fn new_text(hash: u64, bytes: &[u8]) -> Option<Box<Text>> {
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    if count >= MOST_TEXTS {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        losses::count(LossReason::TableFull, 1);
        return None;
    }
    let earlier = AtomicPtr::new(std::ptr::null_mut());
    Some(Box::new(Text { hash, id: StringId(count + 1), bytes: bytes.into(), earlier }))
}

/// Adds a text to the list of all and writes it down if there is a trace. Whoever makes a trace at
/// the same time looks at the list after that: one of the two writes the text, or both.
fn publish(text: &'static Text) -> &'static Text {
    let mut latest = LATEST.load(Ordering::Relaxed);
    loop {
        text.earlier.store(latest, Ordering::Relaxed);
        let new = std::ptr::from_ref(text).cast_mut();
        match LATEST.compare_exchange(latest, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => break,
            Err(other) => latest = other,
        }
    }
    if process::existing().is_some() {
        thread::record_definition(&Fact::DefineString { id: text.id, text: &text.bytes });
    }
    text
}

/// Calls `take` with the text that has a number, if there is one.
pub fn with_text(id: StringId, take: impl FnOnce(&[u8])) {
    let mut next = LATEST.load(Ordering::SeqCst);
    // SAFETY: null or an entry, which is never freed.
    while let Some(text) = unsafe { next.as_ref() } {
        if text.id == id {
            return take(&text.bytes);
        }
        next = text.earlier.load(Ordering::Relaxed);
    }
}

/// Calls `visit` with the definition of every text known so far.
pub fn for_each(mut visit: impl FnMut(&Fact<'_>)) {
    let mut next = LATEST.load(Ordering::SeqCst);
    // SAFETY: null or an entry, which is never freed.
    while let Some(text) = unsafe { next.as_ref() } {
        visit(&Fact::DefineString { id: text.id, text: &text.bytes });
        next = text.earlier.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn equal_texts_have_one_number_in_all_threads() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    (0..500).map(|number| (number, intern(format!("text {number}").as_bytes()))).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut numbers = HashMap::new();
        for (text, id) in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            assert!(id.is_some());
            assert_eq!(*numbers.entry(text).or_insert(id), id);
        }
        let mut ids: Vec<_> = numbers.values().collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 500);
        let mut defined = HashMap::new();
        for_each(|fact| {
            if let Fact::DefineString { id, text } = fact {
                defined.insert(*id, text.to_vec());
            }
        });
        for (number, id) in numbers {
            assert_eq!(defined[&id], format!("text {number}").into_bytes());
        }
    }

    #[test]
    fn the_empty_text_has_no_number() {
        assert_eq!(intern(b""), StringId::NONE);
    }
}

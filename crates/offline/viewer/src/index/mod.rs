//! The index: what was learned from a recording, kept beside it, so that it opens at once the next time.
//!
//! It is never needed: whatever is wrong with it, the recording is read instead. It counts only for exactly the
//! recording and the program that it was made from and by, and only if it belongs to the owner of the recording.
//!
//! * `stored`, `column`: how values become bytes and come back.
//! * `contents`: what is stored of model and findings.
//! * `check`: that what comes back does not lead beyond itself.

mod check;
mod column;
mod contents;
pub(crate) mod stored;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use msmemscope_trace::{Fingerprint, open_regular_file};
use xxhash_rust::xxh3::xxh3_64;

use crate::entry::Identity;
use crate::findings::Findings;
use crate::model::Model;
use crate::model::events::Events;

use stored::{Input, Output, Section, Stored, Unusable};

/// Name of an index beside its recording.
const FILE_NAME: &str = "viewer.index";
/// The same while it is written.
const NEW_FILE_NAME: &str = "viewer.index.new";
/// A file that nobody has finished for this long was left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(600);
const MAGIC: [u8; 8] = *b"MSMSVIEW";
/// To be raised with every change of what is stored.
const VERSION: u32 = 7;
const SECTIONS: usize = 3;
/// Magic, version, program, fingerprint, sections, and the checksum of all that.
const HEADER_BYTES: usize = 8 + 4 + 8 + 8 + 16 + 8 + SECTIONS * 16 + 8;
/// Recordings with fewer events are read as quickly as an index of them.
const FEWEST_EVENTS: usize = 100_000;
/// What a true index may take in memory: this many times the size of the recording, and a little.
const MEMORY_FACTOR: u64 = 32;
const MEMORY_BESIDES_BYTES: u64 = 16 << 20;

/// An index that fits its recording, as far as its first part says.
#[derive(Debug)]
pub(crate) struct Index {
    file: File,
    sections: [Section; SECTIONS],
    budget_bytes: u64,
    pub(crate) identity: Identity,
}

impl Index {
    /// The index of a recording; none if there is none of use. One of ours that is of no use is removed.
    pub(crate) fn open(trace: &Path, fingerprint: &Fingerprint) -> Option<Self> {
        let path = trace.with_file_name(FILE_NAME);
        match Self::read_header(&path, trace, fingerprint)? {
            Ok(index) => Some(index),
            Err(_) => {
                remove(trace);
                None
            }
        }
    }

    /// None if there is no file that calls itself an index.
    fn read_header(path: &Path, trace: &Path, fingerprint: &Fingerprint) -> Option<Result<Self, Unusable>> {
        let file = open_regular_file(path).ok()?;
        let (metadata, of_trace) = (file.metadata().ok()?, fs::metadata(trace).ok()?);
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        if metadata.uid() != of_trace.uid() || !bytes.starts_with(&MAGIC) {
            return None;
        }
        let header = |sections: &[Section; SECTIONS]| header(fingerprint, sections);
        let sections: [Section; SECTIONS] = std::array::from_fn(|number| {
            let at = HEADER_BYTES - 8 - (SECTIONS - number) * 16;
            let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            Section { bytes: word(at), hash: word(at + 8) }
        });
        if header(&sections) != bytes {
            return Some(Err(Unusable("it was made from another recording or by another program")));
        }
        let all_bytes = sections.iter().fold(HEADER_BYTES as u64, |sum, section| sum.saturating_add(section.bytes));
        if all_bytes != metadata.len() {
            return Some(Err(Unusable("it ends too early")));
        }
        let budget_bytes = fingerprint.file_bytes.saturating_mul(MEMORY_FACTOR).saturating_add(MEMORY_BESIDES_BYTES);
        let mut index = Self { file, sections, budget_bytes, identity: Identity::default() };
        Some(index.load_section(0).map(|identity| {
            index.identity = identity;
            index
        }))
    }

    /// Everything that it holds.
    pub(crate) fn load(&self) -> Result<(Model, Findings), Unusable> {
        let ((mut model, findings), events) = std::thread::scope(|scope| {
            let events = scope.spawn(|| self.load_section::<Events>(2));
            let rest = self.load_section::<(Model, Findings)>(1)?;
            Ok((rest, events.join().map_err(|_| Unusable("it cannot be read"))??))
        })?;
        model.events = events;
        model.blocks.finish();
        check::check(&model)?;
        Ok((model, findings))
    }

    fn load_section<T: Stored>(&self, number: usize) -> Result<T, Unusable> {
        let before: u64 = self.sections[..number].iter().map(|section| section.bytes).sum();
        let mut input = Input::new(&self.file, HEADER_BYTES as u64 + before, self.sections[number], self.budget_bytes);
        let value = T::load(&mut input)?;
        input.finish().map(|()| value)
    }
}

/// The first bytes of an index.
fn header(fingerprint: &Fingerprint, sections: &[Section; SECTIONS]) -> [u8; HEADER_BYTES] {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&this_program().to_le_bytes());
    bytes.extend_from_slice(&fingerprint.file_bytes.to_le_bytes());
    bytes.extend_from_slice(&fingerprint.modified_ns.to_le_bytes());
    bytes.extend_from_slice(&fingerprint.headers_hash.to_le_bytes());
    for section in sections {
        bytes.extend_from_slice(&section.bytes.to_le_bytes());
        bytes.extend_from_slice(&section.hash.to_le_bytes());
    }
    let hash = xxh3_64(&bytes);
    bytes.extend_from_slice(&hash.to_le_bytes());
    let mut header = [0; HEADER_BYTES];
    header.copy_from_slice(&bytes);
    header
}

/// What tells this build of the program from others: another one may analyse differently.
fn this_program() -> u64 {
    static PROGRAM: OnceLock<u64> = OnceLock::new();
    *PROGRAM.get_or_init(|| {
        let metadata = std::env::current_exe().and_then(fs::metadata);
        let stamp = metadata.map_or((0, 0, 0), |program| (program.len(), program.mtime(), program.mtime_nsec()));
        xxh3_64(format!("{} {stamp:?}", env!("CARGO_PKG_VERSION")).as_bytes())
    })
}

/// Throws the index of a recording away.
pub(crate) fn remove(trace: &Path) {
    drop(fs::remove_file(trace.with_file_name(FILE_NAME)));
}

/// What an index is made of.
pub(crate) struct Learned<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) model: &'a Model,
    pub(crate) findings: &'a Findings,
}

/// Writes the index of a recording if that is worth it, the user may, and the recording is still the one that was
/// read. Gives up without a trace when `ends` becomes true.
pub(crate) fn write(trace: &Path, fingerprint: &Fingerprint, learned: &Learned<'_>, ends: &AtomicBool) {
    if learned.model.events.len() < FEWEST_EVENTS || Fingerprint::of(trace).ok() != Some(*fingerprint) {
        return;
    }
    let path = trace.with_file_name(NEW_FILE_NAME);
    let Some(file) = create(&path, trace) else { return };
    let written = write_to(file, fingerprint, learned, ends);
    let kept = written.and_then(|()| fs::rename(&path, trace.with_file_name(FILE_NAME)));
    if kept.is_err() {
        drop(fs::remove_file(&path));
    }
}

/// A new file beside the recording, with its permissions; none if the user may not, or if it would not belong to the
/// owner of the recording.
fn create(path: &Path, trace: &Path) -> Option<File> {
    let of_trace = fs::metadata(trace).ok()?;
    let age = fs::symlink_metadata(path).and_then(|left| left.modified()).ok().and_then(|time| time.elapsed().ok());
    if age.is_some_and(|age| age > LEFT_BEHIND) {
        drop(fs::remove_file(path));
    }
    let mode = of_trace.permissions().mode() & 0o666;
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).ok()?;
    if file.metadata().is_ok_and(|metadata| metadata.uid() == of_trace.uid()) {
        return Some(file);
    }
    drop(fs::remove_file(path));
    None
}

fn write_to(file: File, fingerprint: &Fingerprint, learned: &Learned<'_>, ends: &AtomicBool) -> io::Result<()> {
    let mut output = Output::new(Interruptible { writer: BufWriter::with_capacity(1 << 20, file), ends });
    output.put(&[0; HEADER_BYTES])?;
    output.end_section();
    learned.identity.store(&mut output)?;
    let identity = output.end_section();
    learned.model.store(&mut output)?;
    learned.findings.store(&mut output)?;
    let rest = output.end_section();
    learned.model.events.store(&mut output)?;
    let sections = [identity, rest, output.end_section()];
    let mut file = output.into_writer().writer.into_inner()?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header(fingerprint, &sections))
}

/// Writes until the program ends.
struct Interruptible<'e, W> {
    writer: W,
    ends: &'e AtomicBool,
}

impl<W: Write> Write for Interruptible<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.ends.load(Ordering::Relaxed) {
            return Err(io::Error::other("the program ends"));
        }
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::answers::Answers;
    use crate::server::Answerer;
    use crate::server::query::Query;
    use crate::session::Session;
    use crate::{ViewSettings, model::filter::Filter};

    /// A session of a small recording, completely read.
    fn session(directory: &Path) -> std::sync::Arc<Session> {
        made_recordings::training(directory, 20_000, 7);
        read(directory)
    }

    fn read(directory: &Path) -> std::sync::Arc<Session> {
        let session = Session::open(ViewSettings {
            paths: vec![directory.to_owned()],
            missing: |_, _| Vec::new(),
            trusts_summaries: true,
        });
        session.wait_until_opened(Duration::from_secs(60)).expect("a recording");
        while !session.is_complete() {
            std::thread::sleep(Duration::from_millis(5));
        }
        session
    }

    /// Writes the index of a recording however small it is.
    fn write_small(session: &Session, trace: &Path) -> PathBuf {
        let entry = &session.opened().expect("opened").entries[0];
        let (model, findings) = (entry.model().expect("a model"), entry.findings().expect("findings"));
        let learned = Learned { identity: &entry.identity, model, findings };
        let path = trace.with_file_name(FILE_NAME);
        let file = create(&path, trace).expect("a file");
        let fingerprint = Fingerprint::of(trace).expect("a trace");
        write_to(file, &fingerprint, &learned, &AtomicBool::new(false)).expect("room");
        path
    }

    /// With the checksums that its bytes have now.
    fn signed(mut bytes: Vec<u8>, fingerprint: &Fingerprint) -> Vec<u8> {
        let mut at = HEADER_BYTES;
        let sections: [Section; SECTIONS] = std::array::from_fn(|number| {
            let place = HEADER_BYTES - 8 - (SECTIONS - number) * 16;
            let length = u64::from_le_bytes(bytes[place..place + 8].try_into().expect("eight bytes"));
            let content = &bytes[at..at + length as usize];
            at += length as usize;
            Section { bytes: length, hash: xxh3_64(content) }
        });
        bytes[..HEADER_BYTES].copy_from_slice(&header(fingerprint, &sections));
        bytes
    }

    /// Whoever can write into a directory may leave an index there whose checksums are right and whose contents are not.
    #[test]
    fn an_index_that_lies_is_refused_or_answered_from_without_harm() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let trace = directory.path().join(msmemscope_trace::TRACE_FILE_NAME);
        let path = write_small(&session(directory.path()), &trace);
        let fingerprint = Fingerprint::of(&trace).expect("a trace");
        let good = fs::read(&path).expect("an index");
        assert!(Index::open(&trace, &fingerprint).is_some_and(|index| index.load().is_ok()));
        let mut seed = 88_172_645_463_325_252u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let (mut refused, mut taken) = (0, 0);
        for _ in 0..400 {
            let mut bytes = good.clone();
            for _ in 0..1 + next() % 4 {
                let at = HEADER_BYTES + (next() % (bytes.len() - HEADER_BYTES) as u64) as usize;
                bytes[at] = if next() % 2 == 0 { 255 } else { next() as u8 };
            }
            fs::write(&path, signed(bytes, &fingerprint)).expect("room");
            let Some(Ok((model, _))) = Index::open(&trace, &fingerprint).map(|index| index.load()) else {
                refused += 1;
                continue;
            };
            taken += 1;
            assert!(model.blocks.len() < 1 << 20 && model.events.len() < 1 << 20);
            let answers = Answers::new(read(directory.path()));
            let shown =
                ["session", "findings", "curve", "tracks", "blocks", "holds", "flame", "steps", "pool", "owners"];
            for name in shown.into_iter().chain(["table/blocks", "table/events", "ranks", "fragmentation"]) {
                answers.answer(name, &Query::parse("width=50&limit=500&offset=100"));
            }
        }
        assert!(refused > 20 && taken > 20, "{refused} refused, {taken} taken");
    }

    #[test]
    fn an_index_has_everything_that_a_model_has() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let trace = directory.path().join(msmemscope_trace::TRACE_FILE_NAME);
        let session = session(directory.path());
        write_small(&session, &trace);
        let index = Index::open(&trace, &Fingerprint::of(&trace).expect("a trace")).expect("an index");
        let (model, findings) = index.load().expect("what was written");
        let entry = &session.opened().expect("opened").entries[0];
        let mut again = format!("{model:?}");
        let mut before = format!("{:?}", entry.model().expect("a model"));
        for text in [&mut again, &mut before] {
            // Tables that only serve the making of a model, and hash tables, whose order is nobody's.
            let from = text.find("texts: Texts").expect("texts");
            text.truncate(from);
            while let Some(from) = text.find("positions: {") {
                let to = from + text[from..].find('}').expect("an end");
                text.replace_range(from..=to, "");
            }
        }
        assert!(before == again);
        let texts = &entry.model().expect("a model").texts.known;
        assert_eq!(*texts, model.texts.known);
        assert_eq!(format!("{:?}", entry.findings().expect("findings")), format!("{findings:?}"));
        assert_eq!(format!("{:?}", entry.identity), format!("{:?}", index.identity));
        let group = model.main_group().expect("a pool");
        assert!(entry.view(&model, group, &Filter::default()).changes.peak_bytes > 0);
    }

    #[test]
    fn writing_ends_with_the_program() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let trace = directory.path().join(msmemscope_trace::TRACE_FILE_NAME);
        let session = session(directory.path());
        let entry = &session.opened().expect("opened").entries[0];
        let (model, findings) = (entry.model().expect("a model"), entry.findings().expect("findings"));
        let file = create(&trace.with_file_name(NEW_FILE_NAME), &trace).expect("a file");
        let learned = Learned { identity: &entry.identity, model, findings };
        let fingerprint = Fingerprint::of(&trace).expect("a trace");
        assert!(write_to(file, &fingerprint, &learned, &AtomicBool::new(true)).is_err());
    }
}

//! Requests to a running process about its recording, in words of the header page: no socket, no thread, no signal.
//!
//! Whoever asks writes what is wanted into the page and its number last. The process looks at that number with every
//! record it writes, takes the request with the next one, and writes the number back when it has met it. A number without
//! the right checksum behind it is taken and forgotten: the worst that a damaged page can do to a job is that.
//!
//! [`TraceFile`] has the half of the process; [`Requests`] is that of the others. They use plain reads and writes, which
//! shared mappings of a local file see at once; a file that somebody cuts meanwhile is then an error and no signal.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use msmemscope_event::RecordingState;
use xxhash_rust::xxh3::Xxh3;

use crate::layout::{self, FILE_HEADER_BYTES, FILE_MAGIC, file_offset};
use crate::reader::{u32_at, u64_at};
use crate::writer::TraceFile;

/// Longest text of a request.
pub const LONGEST_TEXT_BYTES: usize = FILE_HEADER_BYTES - file_offset::REQUEST_TEXT;
/// First minor version with requests.
const FIRST_VERSION: u16 = 2;
/// How soon to see whether there is an answer, at first and in the end.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// How long a process that has taken a request in the last moment may need to say so.
const LAST_MOMENT: Duration = Duration::from_millis(200);

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Record everything from now on.
    Start = 1,
    /// Only note what is alive from now on.
    Stop = 2,
    /// A step ends here.
    Step = 3,
    /// Write down how much memory frameworks and cards have in use.
    Snapshot = 4,
    /// Use the settings in the text from now on.
    Configure = 5,
}

impl Command {
    /// Whether nothing is missed if this takes the place of an earlier one that nobody has met.
    fn replaces(self, earlier: Self) -> bool {
        let is_state = |command| matches!(command, Self::Start | Self::Stop);
        is_state(self) && is_state(earlier)
    }

    const ALL: [Command; 5] = [Self::Start, Self::Stop, Self::Step, Self::Snapshot, Self::Configure];

    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|command| *command as u32 == code)
    }
}

/// A request, as the process takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// For the answer.
    pub number: u32,
    /// What is wanted.
    pub command: Command,
    /// What else there is to say.
    pub text: Vec<u8>,
}

fn checksum(number: u32, command: u32, text: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&number.to_le_bytes());
    hash.update(&command.to_le_bytes());
    hash.update(text);
    hash.digest()
}

/// What chunks look at in a process that takes no requests.
static NOTHING_ASKED: AtomicU32 = AtomicU32::new(0);

impl TraceFile {
    /// Takes requests from now on. A trace that only reaches the file now and then cannot: nobody sees its page.
    pub fn accept_requests(&self) {
        if !self.is_buffered() {
            self.header_u32(file_offset::TAKES_REQUESTS).store(1, Ordering::Release);
        }
    }

    fn takes_requests(&self) -> bool {
        self.header_u32(file_offset::TAKES_REQUESTS).load(Ordering::Acquire) == 1
    }

    /// The word that chunks look at.
    pub(crate) fn request_word(&self) -> *const AtomicU32 {
        if self.takes_requests() { self.header_u32(file_offset::REQUEST_NUMBER) } else { &raw const NOTHING_ASKED }
    }

    /// Goes on where the page that this one is the copy of has got to.
    pub(crate) fn take_over_requests(&self, original: &Self) {
        if original.takes_requests() {
            self.accept_requests();
        }
        for offset in [file_offset::ANSWER_NUMBER, file_offset::RECORDING_STATE] {
            self.header_u32(offset).store(original.header_u32(offset).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let steps = original.header_u64(file_offset::STEPS).load(Ordering::Relaxed);
        self.header_u64(file_offset::STEPS).store(steps, Ordering::Relaxed);
    }

    /// Whether a request waits.
    pub fn is_request_waiting(&self) -> bool {
        self.header_u32(file_offset::REQUEST_NUMBER).load(Ordering::Relaxed) != 0
    }

    /// Takes the request that waits, if one does. Only one thread gets it.
    pub fn take_request(&self) -> Option<Request> {
        let number = self.header_u32(file_offset::REQUEST_NUMBER);
        let number = if number.load(Ordering::Relaxed) == 0 { 0 } else { number.swap(0, Ordering::Acquire) };
        if number == 0 || !self.takes_requests() {
            return None;
        }
        let command = self.header_u32(file_offset::REQUEST_COMMAND).load(Ordering::Relaxed);
        let length = self.header_u32(file_offset::REQUEST_TEXT_BYTES).load(Ordering::Relaxed) as usize;
        if length > LONGEST_TEXT_BYTES {
            return None;
        }
        let text = self.request_text(length);
        let expected = self.header_u64(file_offset::REQUEST_CHECKSUM).load(Ordering::Relaxed);
        let is_whole = checksum(number, command, &text) == expected;
        Command::from_code(command).filter(|_| is_whole).map(|command| Request { number, command, text })
    }

    /// Tells whoever asked that a request was met, or the errno that says why not.
    pub fn answer_request(&self, number: u32, result: i32) {
        self.header_u32(file_offset::ANSWER_RESULT).store(result as u32, Ordering::Relaxed);
        self.header_u32(file_offset::ANSWER_NUMBER).store(number, Ordering::Release);
    }

    /// Tells others what is recorded.
    pub fn show_state(&self, state: RecordingState) {
        self.header_u32(file_offset::RECORDING_STATE).store(state as u32 + 1, Ordering::Relaxed);
    }

    /// Tells others how many steps there were.
    pub fn show_steps(&self, steps: u64) {
        self.header_u64(file_offset::STEPS).fetch_max(steps, Ordering::Relaxed);
    }
}

/// Why a process cannot be asked for anything.
#[derive(Debug)]
pub enum RequestError {
    /// The operating system said no.
    Io(io::Error),
    /// The recording belongs to this user.
    Foreign {
        /// Number of the user.
        user_id: u32,
    },
    /// No trace, or one of a version that knows no requests.
    NotATrace,
    /// Recorded by a version that knew no requests.
    TooOld,
    /// Records reach the file only now and then, and so would requests the process.
    Buffered,
    /// The job does not want to be asked.
    SwitchedOff,
    /// The process has ended.
    Ended,
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "{error}"),
            Self::Foreign { user_id } => {
                write!(formatter, "the recording belongs to user {user_id}; only that user can control the job")
            }
            Self::NotATrace => formatter.write_str("not the trace of a recorded process"),
            Self::TooOld => formatter.write_str("the job is recorded by a version that cannot be controlled"),
            Self::Buffered => formatter.write_str(
                "the job writes buffered (network file system or MSMEMSCOPE_BUFFERED), where it cannot be controlled",
            ),
            Self::SwitchedOff => {
                formatter.write_str("the job does not let itself be controlled (MSMEMSCOPE_CONTROL=off)")
            }
            Self::Ended => formatter.write_str("the process has ended"),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a process shows of its recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is recorded, if it says so.
    pub state: Option<RecordingState>,
    /// Steps told by the job or from outside.
    pub steps: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was met.
    Met,
    /// It could not be met, for the reason of this errno.
    Refused(i32),
    /// The process has written no record since.
    NotYet,
    /// It was not asked for: an earlier request still waits, which is this one where that is known.
    Occupied(Option<Command>),
}

/// The door to a running process, for its user.
#[derive(Debug)]
pub struct Requests {
    file: File,
}

impl Requests {
    /// Opens the trace of a process. The file must be the caller's own: whoever owns it owns the process.
    pub fn open(path: &Path) -> Result<Self, RequestError> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        // Who is not allowed to write cannot ask; whose it is says more than that.
        let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                check_owner(&std::fs::symlink_metadata(path)?)?;
                return Err(error.into());
            }
            opened => opened?,
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(RequestError::NotATrace);
        }
        check_owner(&metadata)?;
        let requests = Self { file };
        let header = requests.header()?;
        let version = u32_at(&header, file_offset::VERSION_MAJOR);
        if header[..FILE_MAGIC.len()] != FILE_MAGIC || version as u16 != layout::VERSION_MAJOR {
            return Err(RequestError::NotATrace);
        }
        if ((version >> 16) as u16) < FIRST_VERSION {
            return Err(RequestError::TooOld);
        }
        if u32_at(&header, file_offset::CLOSED) != 0 {
            return Err(RequestError::Ended);
        }
        if u32_at(&header, file_offset::FLAGS) & layout::FLAG_BUFFERED != 0 {
            return Err(RequestError::Buffered);
        }
        if u32_at(&header, file_offset::TAKES_REQUESTS) != 1 {
            return Err(RequestError::SwitchedOff);
        }
        Ok(requests)
    }

    fn header(&self) -> io::Result<Vec<u8>> {
        let mut header = vec![0; FILE_HEADER_BYTES];
        self.file.read_exact_at(&mut header, 0)?;
        Ok(header)
    }

    /// Whether nobody will look at this file again.
    fn is_gone(&self) -> io::Result<bool> {
        Ok(self.has_ended()? || self.has_moved()?)
    }

    fn wait_for_answer(&self, number: u32, patience: Duration) -> io::Result<Answer> {
        let started = Instant::now();
        let mut pauses = Pauses::default();
        loop {
            let answer = self.answer(number)?;
            if answer != Answer::NotYet || started.elapsed() >= patience || self.is_gone()? {
                return Ok(answer);
            }
            pauses.rest();
        }
    }

    /// What the process records.
    pub fn condition(&self) -> io::Result<Condition> {
        let header = self.header()?;
        let state = u32_at(&header, file_offset::RECORDING_STATE).checked_sub(1);
        Ok(Condition {
            state: state.map(|code| RecordingState::from_code(u64::from(code))),
            steps: u64_at(&header, file_offset::STEPS),
        })
    }

    /// Whether the process has ended in the normal way.
    pub fn has_ended(&self) -> io::Result<bool> {
        Ok(u32_at(&self.header()?, file_offset::CLOSED) != 0)
    }

    /// Whether the recording has moved to another file.
    pub fn has_moved(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Keeps others from asking. One at a time: they wait until this one has its answer. None if others do not get
    /// theirs in time.
    pub fn lock(&self, deadline: Instant) -> io::Result<Option<Turn<'_>>> {
        let mut pauses = Pauses::default();
        loop {
            if let Some(lock) = Lock::try_take(&self.file)? {
                return Ok(Some(Turn { requests: self, lock }));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            pauses.rest();
        }
    }

    /// The request that nobody has taken, if it is whole: its number and what it wants.
    fn waiting(&self) -> io::Result<Option<(u32, Command)>> {
        let header = self.header()?;
        let number = u32_at(&header, file_offset::REQUEST_NUMBER);
        let command = u32_at(&header, file_offset::REQUEST_COMMAND);
        let length = u32_at(&header, file_offset::REQUEST_TEXT_BYTES) as usize;
        let text = header[file_offset::REQUEST_TEXT..].get(..length);
        let expected = u64_at(&header, file_offset::REQUEST_CHECKSUM);
        let is_whole = number != 0 && text.is_some_and(|text| checksum(number, command, text) == expected);
        Ok(Command::from_code(command).filter(|_| is_whole).map(|command| (number, command)))
    }

    /// The answer to a request, if it is there.
    pub fn answer(&self, number: u32) -> io::Result<Answer> {
        let header = self.header()?;
        Ok(match u32_at(&header, file_offset::ANSWER_NUMBER) == number {
            false => Answer::NotYet,
            true => match u32_at(&header, file_offset::ANSWER_RESULT) as i32 {
                0 => Answer::Met,
                errno => Answer::Refused(errno),
            },
        })
    }
}

/// Longer and longer pauses between two looks.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    fn rest(&mut self) {
        std::thread::sleep(self.0);
        self.0 = LONGEST_PAUSE.min(self.0 * 2);
    }
}

/// The right to ask, which only one has at a time.
#[derive(Debug)]
pub struct Turn<'a> {
    requests: &'a Requests,
    lock: Lock<'a>,
}

impl<'a> Turn<'a> {
    /// Waits until no earlier request is in the way of a command, and gives the one that is when the time is over.
    pub fn wait_for_earlier(&self, command: Command, deadline: Instant) -> io::Result<Option<Command>> {
        let mut pauses = Pauses::default();
        let mut last = None;
        while let Some((number, earlier)) = self.requests.waiting()? {
            if command.replaces(earlier) {
                return Ok(None);
            }
            if Instant::now() >= deadline || self.requests.is_gone()? {
                return Ok(Some(earlier));
            }
            last = Some(number);
            pauses.rest();
        }
        // What was taken just now is met with its answer: other settings are known only then.
        if let Some(number) = last {
            self.requests.wait_for_answer(number, LAST_MOMENT)?;
        }
        Ok(None)
    }

    /// Asks for something, in place of what nobody has taken yet.
    pub fn ask(self, command: Command, text: &[u8]) -> io::Result<Asked<'a>> {
        let Self { requests, lock } = self;
        if text.len() > LONGEST_TEXT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the settings are too long"));
        }
        let header = requests.header()?;
        let earlier = u32_at(&header, file_offset::REQUEST_NUMBER).max(u32_at(&header, file_offset::ANSWER_NUMBER));
        let number = earlier.checked_add(1).unwrap_or(1);
        let write = |bytes: &[u8], offset: usize| requests.file.write_all_at(bytes, offset as u64);
        write(&0u32.to_le_bytes(), file_offset::REQUEST_NUMBER)?;
        write(text, file_offset::REQUEST_TEXT)?;
        write(&(command as u32).to_le_bytes(), file_offset::REQUEST_COMMAND)?;
        write(&(text.len() as u32).to_le_bytes(), file_offset::REQUEST_TEXT_BYTES)?;
        write(&checksum(number, command as u32, text).to_le_bytes(), file_offset::REQUEST_CHECKSUM)?;
        write(&number.to_le_bytes(), file_offset::REQUEST_NUMBER)?;
        Ok(Asked { requests, number, _lock: lock })
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Asked<'a> {
    requests: &'a Requests,
    number: u32,
    _lock: Lock<'a>,
}

impl Asked<'_> {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Waits for the answer, as long as there may be one.
    pub fn wait(&self, patience: Duration) -> io::Result<Answer> {
        self.requests.wait_for_answer(self.number, patience)
    }

    /// Takes the request back, unless the process has it already.
    pub fn withdraw(&self) -> io::Result<Answer> {
        self.requests.file.write_all_at(&0u32.to_le_bytes(), file_offset::REQUEST_NUMBER as u64)?;
        self.wait(LAST_MOMENT)
    }
}

/// Keeps others from asking meanwhile.
#[derive(Debug)]
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    /// None while somebody else has it.
    fn try_take(file: &'a File) -> io::Result<Option<Self>> {
        // SAFETY: plain system call.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Some(Self(file)));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // SAFETY: plain system call.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn check_owner(metadata: &std::fs::Metadata) -> Result<(), RequestError> {
    // SAFETY: plain system call.
    let user_id = unsafe { libc::geteuid() };
    if metadata.uid() == user_id { Ok(()) } else { Err(RequestError::Foreign { user_id: metadata.uid() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::ProcessIdentity;
    use std::ffi::CString;
    use std::path::PathBuf;

    fn trace(directory: &tempfile::TempDir) -> (TraceFile, PathBuf) {
        let path = directory.path().join("recording.trace");
        let identity = ProcessIdentity {
            process_id: std::process::id(),
            parent_process_id: 1,
            run_id: 1,
            wall_offset_ns: 0,
            monotonic_ns: 0,
        };
        let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        (TraceFile::create(name, &identity, 64 << 20).expect("a trace"), path)
    }

    fn ask<'a>(requests: &'a Requests, command: Command, text: &[u8]) -> Asked<'a> {
        requests.lock(Instant::now()).expect("a lock").expect("nobody else asks").ask(command, text).expect("asked")
    }

    #[test]
    fn a_request_goes_there_and_its_answer_back() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (file, path) = trace(&directory);
        assert!(matches!(Requests::open(&path), Err(RequestError::SwitchedOff)));
        file.accept_requests();
        file.show_state(RecordingState::Shadow);
        let chunk = file.allocate_chunk(1, 0).expect("a chunk");
        assert!(!chunk.is_request_waiting());
        let requests = Requests::open(&path).expect("ours");
        let asked = ask(&requests, Command::Configure, b"1;output=x");
        assert!(chunk.is_request_waiting());
        assert_eq!(asked.wait(Duration::ZERO).expect("readable"), Answer::NotYet);
        let request = file.take_request().expect("a request");
        assert_eq!((request.command, &request.text[..]), (Command::Configure, &b"1;output=x"[..]));
        assert!(!chunk.is_request_waiting() && file.take_request().is_none());
        file.answer_request(request.number, libc::EINVAL);
        assert_eq!(asked.wait(Duration::ZERO).expect("readable"), Answer::Refused(libc::EINVAL));
        drop(asked);
        let asked = ask(&requests, Command::Step, b"");
        assert_eq!(asked.withdraw().expect("withdrawn"), Answer::NotYet);
        assert!(file.take_request().is_none());
        assert_eq!(requests.condition().expect("shown").state, Some(RecordingState::Shadow));
    }

    #[test]
    fn what_waits_is_not_lost_to_the_next() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (file, path) = trace(&directory);
        file.accept_requests();
        let (requests, others) = (Requests::open(&path).expect("ours"), Requests::open(&path).expect("ours"));
        let turn = || requests.lock(Instant::now()).expect("a lock");
        let in_the_way = |command| {
            let turn = turn().expect("nobody else asks");
            turn.wait_for_earlier(command, Instant::now()).expect("readable")
        };
        let stop = ask(&others, Command::Stop, b"");
        assert!(turn().is_none(), "while somebody waits for the answer");
        drop(stop);
        for command in [Command::Step, Command::Snapshot, Command::Configure] {
            assert_eq!(in_the_way(command), Some(Command::Stop));
        }
        assert_eq!(in_the_way(Command::Start), None, "the later of the two counts");
        drop(ask(&requests, Command::Start, b""));
        assert_eq!(file.take_request().map(|request| request.command), Some(Command::Start));
        drop(ask(&requests, Command::Configure, b"1;output=x"));
        for command in [Command::Start, Command::Configure] {
            assert_eq!(in_the_way(command), Some(Command::Configure));
        }
        // Whoever waits goes on once the job has answered.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let turn = turn().expect("nobody else asks");
                turn.wait_for_earlier(Command::Configure, Instant::now() + Duration::from_secs(60))
            });
            std::thread::sleep(Duration::from_millis(20));
            let request = file.take_request().expect("a request");
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished(), "taken, but not met");
            file.answer_request(request.number, 0);
            assert_eq!(waiting.join().expect("no panic").expect("readable"), None);
        });
    }

    #[test]
    fn what_is_torn_or_foreign_is_taken_and_forgotten() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (file, path) = trace(&directory);
        file.accept_requests();
        let hostile = OpenOptions::new().write(true).open(&path).expect("the file");
        for (offset, value) in [
            (file_offset::REQUEST_CHECKSUM, 7u32),
            (file_offset::REQUEST_COMMAND, 99),
            (file_offset::REQUEST_TEXT_BYTES, u32::MAX),
        ] {
            let requests = Requests::open(&path).expect("ours");
            let _asked = ask(&requests, Command::Start, b"");
            hostile.write_all_at(&value.to_le_bytes(), offset as u64).expect("written");
            assert_eq!(file.take_request(), None);
            assert_eq!(file.take_request(), None, "and not looked at again");
        }
    }

    #[test]
    fn links_pipes_and_other_files_are_refused() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (file, path) = trace(&directory);
        file.accept_requests();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(matches!(Requests::open(&link), Err(RequestError::Io(_))));
        let pipe = directory.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(matches!(Requests::open(&pipe), Err(RequestError::NotATrace)));
        let text = directory.path().join("text");
        std::fs::write(&text, [b'x'; 8192]).expect("a file");
        assert!(matches!(Requests::open(&text), Err(RequestError::NotATrace)));
        std::fs::write(&text, b"MSMSCOPE").expect("a file");
        assert!(matches!(Requests::open(&text), Err(RequestError::Io(_))));
        file.close(1);
        assert!(matches!(Requests::open(&path), Err(RequestError::Ended)));
    }
}

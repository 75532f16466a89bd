//! Reads from the driver when cards start and finish tasks.
//!
//! A card tells that through a ring, the channel, which somebody has to empty in time. A thread of ours does, as long as
//! kernels are recorded: the only thread the recorder ever starts. It has all signals blocked, waits in the driver until
//! there is something, and ends if no other thread is left. Whoever stops recording, or exits, empties the channel once
//! more by himself. What was read is in the trace at once; which kernel it was about is found out when that is read.
//!
//! Everything a process knows about its channels lies in a page that a forked child finds empty: it has no reader and no
//! channel until it uses a card.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use msmemscope_courtesy::Descriptor;
use msmemscope_event::{Device, Fact, KernelPhase, Severity, StringId};

use crate::device_clock::{Comparison, DeviceClock};
use crate::real::RealFunction;
use crate::task_records::Form;
use crate::{clock, errno, kernels, message, state, thread, wiped_page};

const LIBRARY: &str = "libascend_hal.so";
/// Cards that can be told apart.
pub const MOST_DEVICES: usize = 64;
/// The channel of tasks.
const TASK_CHANNEL: u32 = 50;
const BUFFER_BYTES: usize = 256 << 10;
/// Reads after which a channel that is filled as quickly as it is read has to wait for its next turn.
const MOST_READS: usize = 1 << 16;
/// Longest wait in the driver; the thread then looks around.
const WAIT_SECONDS: i32 = 1;
/// Pause before a channel that has something is read, so that it is read in large pieces. The ring of a card has room for
/// more than a million tasks per second at this pace.
const PAUSE_NS: i64 = 10_000_000;
/// Longest wait for another thread that reads.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// A comparison of clocks that took longer says too little.
const LONGEST_COMPARISON_NS: u64 = 200_000;
const COMPARISON_ATTEMPTS: usize = 5;
/// What cards of the 910B count with; for drivers that do not say.
const USUAL_KILOHERTZ: u64 = 50_000;
const STACK_BYTES: usize = 256 << 10;

const MODULE_SYSTEM: i32 = 0;
const INFORMATION_COUNTER: i32 = 13;
const INFORMATION_KILOHERTZ: i32 = 25;

/// Started by us unless somebody else needs it.
pub static START: RealFunction = RealFunction::new(LIBRARY, &[c"prof_drv_start"]);
pub static STOP: RealFunction = RealFunction::new(LIBRARY, &[c"prof_stop"]);
static READ: RealFunction = RealFunction::new(LIBRARY, &[c"prof_channel_read"]);
static POLL: RealFunction = RealFunction::new(LIBRARY, &[c"prof_channel_poll"]);
static DEVICE_INFORMATION: RealFunction = RealFunction::new(LIBRARY, &[c"halGetDeviceInfo"]);
static CHIP_NAME: RealFunction = RealFunction::new("libascendcl.so", &[c"aclrtGetSocName"]);

type Start = unsafe extern "C-unwind" fn(u32, u32, *const StartParameters) -> i32;
type Stop = unsafe extern "C-unwind" fn(u32, u32) -> i32;
type Read = unsafe extern "C-unwind" fn(u32, u32, *mut c_char, u32) -> i32;
type Poll = unsafe extern "C-unwind" fn(*mut ReadyChannel, i32, i32) -> i32;
type DeviceInformation = unsafe extern "C-unwind" fn(u32, i32, i32, *mut i64) -> i32;
type ChipName = unsafe extern "C-unwind" fn() -> *const c_char;

/// What the driver returns for a function it does not have.
const NOT_SUPPORTED: i32 = 0xfffe;

/// What a channel is started with.
#[repr(C)]
pub struct StartParameters {
    channel_type: i32,
    sample_period: u32,
    is_real_time: u32,
    user_data: *const u32,
    user_data_bytes: u32,
}

/// A channel that has something to read.
#[repr(C)]
#[derive(Clone, Copy)]
struct ReadyChannel {
    device: u32,
    channel: u32,
}

/// What a process knows about its channels. Zero is a valid value, and what a forked child finds.
#[repr(C)]
struct Shared {
    /// Cards whose channel is ours, a bit each.
    open: AtomicU64,
    /// Cards whose channel is not to be had, a bit each.
    refused: AtomicU64,
    /// Whether a thread reads.
    is_reading: AtomicBool,
    /// Whether there is a thread for that.
    has_thread: AtomicBool,
    /// What whoever reads needs; made by the first, never freed.
    reader: AtomicPtr<Reader>,
}

/// What whoever reads needs.
struct Reader {
    form: Form,
    buffer: Box<[u8]>,
    /// Clocks of the cards whose channel is open, and the first bytes of records that were not read to their end.
    cards: [Option<Card>; MOST_DEVICES],
}

struct Card {
    clock: DeviceClock,
    beginning: Vec<u8>,
    /// The thread that read last.
    read_by: u32,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
/// Whether it was said why starts and ends are not recorded.
static IS_SAID: AtomicU32 = AtomicU32::new(0);
static AT_EXIT_IS_SET: AtomicBool = AtomicBool::new(false);

fn existing() -> Option<&'static Shared> {
    // SAFETY: null or a page that is never unmapped.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

fn shared() -> Option<&'static Shared> {
    if existing().is_none() {
        let (page, is_wiped) = wiped_page::new()?;
        if !is_wiped {
            // SAFETY: the handler has the right form.
            unsafe { libc::pthread_atfork(None, None, Some(forget)) };
        }
        let _ = SHARED.compare_exchange(std::ptr::null_mut(), page.cast(), Ordering::AcqRel, Ordering::Acquire);
    }
    existing()
}

/// Stands in for the wiping where the kernel cannot do it.
unsafe extern "C" fn forget() {
    if let Some(shared) = existing() {
        shared.open.store(0, Ordering::Relaxed);
        shared.refused.store(0, Ordering::Relaxed);
        shared.is_reading.store(false, Ordering::Relaxed);
        shared.has_thread.store(false, Ordering::Relaxed);
        shared.reader.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The right to read, until dropped.
struct Turn(&'static Shared);

impl Turn {
    /// Waits until nobody else reads, but not for ever.
    fn wait(shared: &'static Shared) -> Option<Self> {
        let asked_ns = clock::monotonic_ns();
        while shared.is_reading.swap(true, Ordering::Acquire) {
            if clock::monotonic_ns() - asked_ns > LONGEST_WAIT_NS {
                return None;
            }
            std::thread::yield_now();
        }
        Some(Self(shared))
    }

    fn reader(&mut self) -> &mut Reader {
        let mut reader = self.0.reader.load(Ordering::Relaxed);
        if reader.is_null() {
            reader = Box::into_raw(Box::new(Reader {
                form: Form::of_chip(&chip_name()),
                buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
                cards: [const { None }; MOST_DEVICES],
            }));
            self.0.reader.store(reader, Ordering::Relaxed);
        }
        // SAFETY: never freed, and only used by whoever has the turn.
        unsafe { &mut *reader }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_reading.store(false, Ordering::Release);
    }
}

/// Whether it is known if the channel of a card is to be had: it is ours, or somebody else's.
#[inline(always)]
pub fn is_settled(device: u16) -> bool {
    existing().is_some_and(|shared| {
        let settled = shared.open.load(Ordering::Relaxed) | shared.refused.load(Ordering::Relaxed);
        settled.checked_shr(u32::from(device)).is_some_and(|bits| bits & 1 == 1)
    })
}

/// Whether nobody has tried in this process, or somebody closed it.
pub fn is_worth_opening(device: u16) -> bool {
    let Some(shared) = shared() else { return false };
    shared.refused.load(Ordering::Relaxed) >> device & 1 == 0
}

/// Opens the channel of a card, unless that was tried before in this process, and sees to it that somebody reads. Called
/// where the job may wait. Whoever comes second goes on when the first has also done `with_it`.
pub fn open(device: u32, with_it: impl FnOnce()) {
    let Some(shared) = shared() else { return };
    let settled = || shared.open.load(Ordering::Acquire) | shared.refused.load(Ordering::Acquire);
    if device as usize >= MOST_DEVICES || settled() >> device & 1 == 1 {
        return;
    }
    let Some(mut turn) = Turn::wait(shared) else { return };
    if settled() >> device & 1 == 1 {
        return;
    }
    let opened = turn.reader().open(device);
    with_it();
    let place = if opened.is_ok() { &shared.open } else { &shared.refused };
    place.fetch_or(1 << device, Ordering::AcqRel);
    drop(turn);
    if let Err(why) = opened {
        return say_once(&why);
    }
    if !AT_EXIT_IS_SET.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler has the right form and this library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    if !shared.has_thread.swap(true, Ordering::AcqRel) && !start_thread(shared) {
        shared.has_thread.store(false, Ordering::Release);
        close_all();
        say_once("no thread can be started that would read them");
    }
}

/// Says why starts and ends of kernels are not recorded.
fn say_once(why: &str) {
    if IS_SAID.swap(1, Ordering::Relaxed) == 0 {
        let text = format!("starts and ends of kernels are not recorded, only their launches: {why}");
        message::say(&text);
        thread::record_now(&Fact::Message { severity: Severity::Warning, text: text.as_bytes() });
    }
}

fn chip_name() -> Vec<u8> {
    let Some(real) = CHIP_NAME.address() else { return Vec::new() };
    // SAFETY: the runtime's function of this name has this signature; the answer is null or a text that stays.
    unsafe {
        let name = std::mem::transmute::<*mut c_void, ChipName>(real)();
        if name.is_null() { Vec::new() } else { CStr::from_ptr(name).to_bytes().to_vec() }
    }
}

fn device_information(device: u32, information: i32) -> Option<u64> {
    let real = DEVICE_INFORMATION.address()?;
    let mut value = 0;
    // SAFETY: the driver's function of this name has this signature; the result outlives the call.
    let result = unsafe {
        std::mem::transmute::<*mut c_void, DeviceInformation>(real)(device, MODULE_SYSTEM, information, &mut value)
    };
    (result == 0).then_some(value.cast_unsigned())
}

/// Compares the clock of a card with the host's, as closely as can be had.
fn compare(device: u32) -> Option<Comparison> {
    let attempts = (0..COMPARISON_ATTEMPTS).filter_map(|_| {
        let before_ns = clock::monotonic_ns();
        let ticks = device_information(device, INFORMATION_COUNTER)?;
        let took_ns = clock::monotonic_ns() - before_ns;
        Some((took_ns, Comparison { ticks, monotonic_ns: before_ns + took_ns / 2 }))
    });
    let (took_ns, comparison) = attempts.min_by_key(|(took_ns, _)| *took_ns)?;
    (took_ns <= LONGEST_COMPARISON_NS).then_some(comparison)
}

impl Reader {
    fn open(&mut self, device: u32) -> Result<(), String> {
        let (Some(start), Some(_)) = (START.address(), READ.address()) else {
            return Err("this driver has no channel for them".to_owned());
        };
        // The first comparison may be a bad one; it is soon followed by better ones.
        let first = || {
            let monotonic_ns = clock::monotonic_ns();
            device_information(device, INFORMATION_COUNTER).map(|ticks| Comparison { ticks, monotonic_ns })
        };
        let first = compare(device).or_else(first).ok_or("this driver does not tell the time of a card")?;
        let kilohertz = device_information(device, INFORMATION_KILOHERTZ).filter(|kilohertz| *kilohertz > 0);
        // Tasks, and threads within large tasks.
        let configuration: [u32; 11] = [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let words = if self.form == Form::Short { 11 } else { 9 };
        let parameters = StartParameters {
            channel_type: 0,
            sample_period: 20,
            is_real_time: 1,
            user_data: configuration.as_ptr(),
            user_data_bytes: words * 4,
        };
        // SAFETY: the driver's function of this name has this signature; the parameters outlive the call.
        let result = unsafe { std::mem::transmute::<*mut c_void, Start>(start)(device, TASK_CHANNEL, &parameters) };
        if result != 0 {
            return Err(format!("the channel of card {device} belongs to somebody else (driver error {result})"));
        }
        let clock = DeviceClock::new(kilohertz.unwrap_or(USUAL_KILOHERTZ), first);
        self.cards[device as usize] = Some(Card { clock, beginning: Vec::new(), read_by: 0 });
        Ok(())
    }

    /// Empties the channel of a card into the trace. False if it cannot be read any more.
    fn empty(&mut self, device: u32) -> bool {
        let (Some(read), Some(card)) = (READ.address(), self.cards[device as usize].as_mut()) else { return false };
        // SAFETY: the driver's function of this name has this signature.
        let read = unsafe { std::mem::transmute::<*mut c_void, Read>(read) };
        if card.clock.is_due(clock::monotonic_ns())
            && let Some(comparison) = compare(device)
        {
            card.clock.compared(comparison);
        }
        let thread_id = thread::thread_id();
        if std::mem::replace(&mut card.read_by, thread_id) != thread_id {
            card.clock.changes_hands();
        }
        for _ in 0..MOST_READS {
            let held = card.beginning.len();
            self.buffer[..held].copy_from_slice(&card.beginning);
            let room = &mut self.buffer[held..];
            // SAFETY: the buffer is as long as it says.
            let count = unsafe { read(device, TASK_CHANNEL, room.as_mut_ptr().cast(), room.len() as u32) };
            let Ok(count) = usize::try_from(count) else { return false };
            // A driver may give a part of what it has, such as that up to the end of its ring.
            if count == 0 {
                return true;
            }
            let filled = &self.buffer[..held + count.min(BUFFER_BYTES - held)];
            let records = filled.chunks_exact(self.form.record_bytes());
            card.beginning.clear();
            card.beginning.extend_from_slice(records.remainder());
            let is_expanded = kernels::has_expanded_streams();
            records.filter_map(|record| self.form.decode(record, is_expanded)).for_each(|record| {
                let phase = if record.is_start { KernelPhase::ExecuteStart } else { KernelPhase::ExecuteEnd };
                let fact = Fact::Kernel {
                    phase,
                    device: Device::from_id(i64::from(device)),
                    name: StringId::NONE,
                    stream_id: record.stream_id,
                    task_id: record.task_id,
                    detail: StringId::NONE,
                };
                if state::records_everything() {
                    thread::record(card.clock.place(record.ticks), &fact);
                }
            });
        }
        true
    }
}

fn devices_in(bits: u64) -> impl Iterator<Item = u32> {
    (0..MOST_DEVICES as u32).filter(move |device| bits >> device & 1 == 1)
}

/// Empties all channels that are open, into the trace.
pub fn empty_all() {
    let Some(shared) = existing() else { return };
    let open = shared.open.load(Ordering::Acquire);
    if open == 0 {
        return;
    }
    let Some(mut turn) = Turn::wait(shared) else { return };
    for device in devices_in(open) {
        if !turn.reader().empty(device) {
            shared.open.fetch_and(!(1 << device), Ordering::AcqRel);
        }
    }
}

/// Empties and closes all channels: nobody wants to know any more.
pub fn close_all() {
    empty_all();
    let Some(shared) = existing() else { return };
    devices_in(shared.open.swap(0, Ordering::AcqRel)).for_each(stop);
    shared.refused.store(0, Ordering::Release);
}

/// Somebody else has stopped the channel of a card: the next kernel that is launched there opens ours again.
fn take_back(device: u32) {
    let Some(shared) = existing().filter(|_| (device as usize) < MOST_DEVICES) else { return };
    shared.refused.fetch_and(!(1 << device), Ordering::AcqRel);
}

/// Gives the channel of a card to somebody else who is about to start it.
fn give_up(device: u32) {
    let Some(shared) = existing() else { return };
    if device as usize >= MOST_DEVICES || shared.open.load(Ordering::Acquire) >> device & 1 == 0 {
        return;
    }
    empty_all();
    shared.open.fetch_and(!(1 << device), Ordering::AcqRel);
    shared.refused.fetch_or(1 << device, Ordering::AcqRel);
    stop(device);
    say_once(&format!("somebody else in this process has taken the channel of card {device}, until they stop it"));
}

fn stop(device: u32) {
    if let Some(real) = STOP.address() {
        // SAFETY: the driver's function of this name has this signature.
        unsafe { std::mem::transmute::<*mut c_void, Stop>(real)(device, TASK_CHANNEL) };
    }
}

/// Hook of `prof_drv_start`: another profiler wants a channel, and must get what it would get without us.
pub unsafe extern "C-unwind" fn start(device: u32, channel: u32, parameters: *const StartParameters) -> i32 {
    let Some(real) = START.address() else { return NOT_SUPPORTED };
    if channel == TASK_CHANNEL {
        let _ = errno::aside(|| std::panic::catch_unwind(|| give_up(device)));
    }
    // SAFETY: the driver's function of this name has this signature; arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Start>(real)(device, channel, parameters) }
}

/// Hook of `prof_stop`: another profiler has done with a channel.
pub unsafe extern "C-unwind" fn stopped(device: u32, channel: u32) -> i32 {
    let Some(real) = STOP.address() else { return NOT_SUPPORTED };
    // SAFETY: the driver's function of this name has this signature; arguments are the caller's.
    let result = unsafe { std::mem::transmute::<*mut c_void, Stop>(real)(device, channel) };
    if channel == TASK_CHANNEL && result == 0 {
        take_back(device);
    }
    result
}

/// Runs before the driver's own end.
extern "C" fn at_exit() {
    let _ = errno::aside(|| std::panic::catch_unwind(empty_all));
}

/// Starts the thread that reads, with all signals blocked from its first moment on.
fn start_thread(shared: &'static Shared) -> bool {
    // SAFETY: plain old data that sigfillset initialises.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: the sets outlive the calls.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let name = "msmemscope".to_owned();
    let started = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
        let _ = std::panic::catch_unwind(|| read_until_alone(shared));
        shared.has_thread.store(false, Ordering::Release);
    });
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    started.is_ok()
}

/// What the thread does.
fn read_until_alone(shared: &'static Shared) {
    loop {
        if shared.open.load(Ordering::Acquire) == 0 {
            nap(PAUSE_NS * 10);
        } else if wait_for_records() {
            nap(PAUSE_NS);
        }
        empty_all();
        if is_alone() {
            return;
        }
    }
}

/// Waits in the driver until a channel has something; in drivers that have no such wait, a while. True if there is
/// something.
fn wait_for_records() -> bool {
    let Some(real) = POLL.address() else {
        nap(PAUSE_NS);
        return false;
    };
    let mut ready = [ReadyChannel { device: 0, channel: 0 }; MOST_DEVICES];
    // SAFETY: the driver's function of this name has this signature; the array outlives the call.
    let count = unsafe {
        std::mem::transmute::<*mut c_void, Poll>(real)(ready.as_mut_ptr(), MOST_DEVICES as i32, WAIT_SECONDS)
    };
    let is_answer = (0..=MOST_DEVICES as i32).contains(&count);
    if !is_answer {
        nap(PAUSE_NS);
    }
    is_answer && count > 0
}

fn nap(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: waits a while.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

/// Whether all other threads of the process have ended: it lives on only because of this one. The first thread of a
/// process stays in the list after its end.
fn is_alone() -> bool {
    // SAFETY: plain old data, for which zero is a valid value.
    let mut facts: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a valid path; `facts` outlives the call.
    let is_known = unsafe { libc::stat(c"/proc/self/task".as_ptr(), &mut facts) } == 0;
    if !is_known || facts.st_nlink > 4 {
        return false;
    }
    let stat = Descriptor::read_file(c"/proc/self/stat").unwrap_or_default();
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    state == Some(&b'Z')
}

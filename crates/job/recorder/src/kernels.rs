//! Kernels: their launches, as the runtime reports them to profilers.
//!
//! The runtime reports a task on the thread that launches it, inside the call, once a command has asked for that. The
//! report has device, stream, task and the number of the kernel's name, for which the runtime asks first. We look at both
//! on their way through `libprofapi.so` and pass them on: a profiler that listens there goes on listening. So every
//! launch is seen once, whichever of the many launch functions was called and however they call each other.
//!
//! When tasks start and end is read by [`kernel_channel`]. Nothing of all this is touched unless
//! kernels were asked for.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use msmemscope_event::{Device, DeviceMap, Fact, KernelPhase, LossReason, StringId};
use msmemscope_settings::{EventSet, LevelSet, Settings};

use crate::kernel_channel::MOST_DEVICES;
use crate::real::RealFunction;
use crate::{acl, errno, kernel_channel, launches, losses, state, strings, thread};

const LIBRARY: &str = "libprofapi.so";
/// What the profiling interface returns for a function it does not have.
const FAILED: i32 = -1;

pub static REPORT: RealFunction = RealFunction::new(LIBRARY, &[c"MsprofReportCompactInfo"]);
pub static HASH: RealFunction = RealFunction::new(LIBRARY, &[c"MsprofGetHashId"]);
pub static TEXT_ID: RealFunction = RealFunction::new(LIBRARY, &[c"MsprofStr2Id"]);
pub static COMMAND: RealFunction = RealFunction::new(LIBRARY, &[c"profSetProfCommand"]);

type Report = unsafe extern "C-unwind" fn(u32, *const c_void, u32) -> i32;
type Hash = unsafe extern "C-unwind" fn(*const c_char, usize) -> u64;
type Command = unsafe extern "C-unwind" fn(*mut c_void, u32) -> i32;

/// A command of a profiler, as the interface wants it.
#[repr(C)]
struct ProfilerCommand {
    switches: u64,
    more_switches: u64,
    device_count: u32,
    devices: [u32; 64],
    model: u32,
    kind: u32,
    cache_flag: u32,
    parameters: [u32; 1284],
}

const _: () = assert!(size_of::<ProfilerCommand>() == 5424);

const COMMAND_START: u32 = 1;
const COMMAND_STOP: u32 = 2;
const SWITCH_TASK_TIME: u64 = 0x800;
const SWITCH_TASKS: u64 = 0x400_0000;
const ALL_MODELS: u32 = u32::MAX;

/// Layout of a compact report: level at 2, type at 4, data from 24 on.
const REPORT_BYTES: u32 = 64;
const LEVEL_RUNTIME: u16 = 5000;
const TYPE_TASK: u32 = 802;
const TYPE_STREAM_EXPANSION: u32 = 804;
const TYPE_TASK_V2: u32 = 808;

/// Whether kernels were asked for.
static ARE_WANTED: AtomicBool = AtomicBool::new(false);
/// Cards behind the numbers that the process gives them, plus one; zero for those it has not chosen.
static PHYSICAL: [AtomicU16; MOST_DEVICES] = [const { AtomicU16::new(0) }; MOST_DEVICES];
/// Cards the process has used, a bit each.
static USED_DEVICES: AtomicU64 = AtomicU64::new(0);
/// Cards for which we have asked for reports of tasks.
static OBSERVED: AtomicU64 = AtomicU64::new(0);
/// Cards for which other profilers have asked for reports of tasks, as far as we know.
static WANTED_BY_OTHERS: AtomicU64 = AtomicU64::new(0);
/// Whether other profilers are known to say so.
static OTHERS_ARE_KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether ids of streams have more bits in records of the cards.
static HAS_EXPANDED_STREAMS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread sends a command of ours: what is reported meanwhile answers it.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Takes over settings.
pub fn configure(settings: &Settings) {
    let are_wanted = settings.level.contains(LevelSet::KERNEL) && settings.events.collected.contains(EventSet::LAUNCH);
    ARE_WANTED.store(are_wanted, Ordering::Relaxed);
}

/// Whether kernels were asked for.
#[inline(always)]
pub fn are_wanted() -> bool {
    ARE_WANTED.load(Ordering::Relaxed)
}

/// How records of the cards pack the ids of streams.
pub fn has_expanded_streams() -> bool {
    HAS_EXPANDED_STREAMS.load(Ordering::Relaxed)
}

/// A thread has chosen a card, by the number that the process gives it. Threads do that again and again.
#[inline]
pub fn device_chosen(device: Device) {
    let Device::Npu(number) = device else { return };
    let Some(place) = PHYSICAL.get(usize::from(number)) else { return };
    let known = place.load(Ordering::Relaxed);
    let is_settled = known != 0 && (!are_wanted() || kernel_channel::is_settled(known - 1));
    if !is_settled {
        card_chosen(device);
    }
}

#[cold]
fn card_chosen(device: Device) {
    if let Some(number) = used_card(device)
        && are_wanted()
        && state::records_everything()
        && kernel_channel::is_worth_opening(number)
    {
        observe(1 << number);
    }
}

/// The card behind the number that this process gives it, which is noted as used.
fn used_card(device: Device) -> Option<u16> {
    let Device::Npu(logical) = device else { return None };
    let physical = match std::env::var_os("ASCEND_RT_VISIBLE_DEVICES") {
        Some(visible) => DeviceMap::parse(visible.as_bytes()).physical(device),
        None => device,
    };
    let Device::Npu(number) = physical else { return None };
    if usize::from(number) >= MOST_DEVICES {
        return None;
    }
    if let Some(place) = PHYSICAL.get(usize::from(logical)) {
        place.store(number + 1, Ordering::Relaxed);
    }
    USED_DEVICES.fetch_or(1 << number, Ordering::Relaxed);
    Some(number)
}

/// Recording begins, or its settings have changed: kernels of all cards in use are observed if they are wanted, and of
/// none if not.
pub fn follow_settings() {
    if are_wanted() && state::records_everything() {
        acl::redirect_optional_functions();
        used_card(acl::current_device());
        observe(USED_DEVICES.load(Ordering::Relaxed));
    } else {
        release();
    }
}

/// Writes down what the cards have told so far.
pub fn catch_up() {
    if OBSERVED.load(Ordering::Relaxed) != 0 {
        let _ = errno::aside(|| std::panic::catch_unwind(kernel_channel::empty_all));
    }
}

/// Recording is about to stop: what the cards have told so far belongs to it.
pub fn release() {
    let observed = OBSERVED.load(Ordering::Relaxed);
    if observed == 0 {
        return;
    }
    let _ = errno::aside(|| {
        std::panic::catch_unwind(|| {
            OBSERVED.store(0, Ordering::Relaxed);
            kernel_channel::close_all();
            let only_ours = observed & !WANTED_BY_OTHERS.load(Ordering::Relaxed);
            devices(only_ours).for_each(|device| send(COMMAND_STOP, device));
        })
    });
}

fn devices(bits: u64) -> impl Iterator<Item = u32> {
    (0..MOST_DEVICES as u32).filter(move |device| bits >> device & 1 == 1)
}

/// Has the launches of kernels on some cards reported, and opens their channels. In a forked child the channels are opened
/// anew.
#[cold]
fn observe(bits: u64) {
    let _ = errno::aside(|| {
        std::panic::catch_unwind(|| {
            OBSERVED.fetch_or(bits, Ordering::Relaxed);
            for device in devices(bits) {
                kernel_channel::open(device, || send(COMMAND_START, device));
            }
        })
    });
}

/// Sends the command to start or stop reports of tasks on a card.
fn send(kind: u32, device: u32) {
    let Some(real) = COMMAND.address() else { return };
    let mut command = Box::new(ProfilerCommand {
        switches: SWITCH_TASK_TIME | SWITCH_TASKS,
        more_switches: 0,
        device_count: 1,
        devices: [0; 64],
        model: ALL_MODELS,
        kind,
        cache_flag: 0,
        parameters: [0; 1284],
    });
    command.devices[0] = device;
    let length = size_of::<ProfilerCommand>() as u32;
    let command = std::ptr::from_mut(&mut *command).cast();
    IS_ASKING.set(true);
    // SAFETY: the interface's function of this name has this signature; the command outlives the call.
    unsafe { std::mem::transmute::<*mut c_void, Command>(real)(command, length) };
    IS_ASKING.set(false);
}

/// Hook of `profSetProfCommand`: another profiler starts or stops.
pub unsafe extern "C-unwind" fn command(command: *mut c_void, length: u32) -> i32 {
    let Some(real) = COMMAND.address() else { return FAILED };
    let is_whole = length as usize == size_of::<ProfilerCommand>() && !command.is_null();
    // SAFETY: as long as it says.
    let theirs = is_whole.then(|| unsafe { &*command.cast::<ProfilerCommand>() });
    let (mut bits, mut kind) = (0, 0);
    if let Some(theirs) = theirs.filter(|theirs| theirs.switches & SWITCH_TASKS != 0) {
        kind = theirs.kind;
        let count = (theirs.device_count as usize).min(theirs.devices.len());
        let numbers = theirs.devices[..count].iter().filter(|device| (**device as usize) < MOST_DEVICES);
        bits = numbers.fold(0, |bits, device| bits | 1u64 << device);
    }
    if kind == COMMAND_START {
        WANTED_BY_OTHERS.fetch_or(bits, Ordering::Relaxed);
        OTHERS_ARE_KNOWN.store(true, Ordering::Relaxed);
        names::tell(&HASH);
    }
    // SAFETY: the interface's function of this name has this signature; arguments are the caller's.
    let result = unsafe { std::mem::transmute::<*mut c_void, Command>(real)(command, length) };
    if kind == COMMAND_STOP {
        WANTED_BY_OTHERS.fetch_and(!bits, Ordering::Relaxed);
        OTHERS_ARE_KNOWN.store(true, Ordering::Relaxed);
        let observed = OBSERVED.load(Ordering::Relaxed) & bits;
        let _ = errno::aside(|| {
            std::panic::catch_unwind(|| devices(observed).for_each(|device| send(COMMAND_START, device)))
        });
    }
    result
}

/// Hook of `MsprofReportCompactInfo`.
pub unsafe extern "C-unwind" fn report(aging: u32, data: *const c_void, length: u32) -> i32 {
    let mut is_only_ours = false;
    if are_wanted() && length == REPORT_BYTES && !data.is_null() {
        // SAFETY: as long as it says.
        is_only_ours = look_at(unsafe { &*data.cast::<[u8; REPORT_BYTES as usize]>() });
    }
    if is_only_ours {
        return 0;
    }
    let Some(real) = REPORT.address() else { return FAILED };
    // SAFETY: the interface's function of this name has this signature; arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Report>(real)(aging, data, length) }
}

/// Looks at a report. True if it was made only because we asked for it: other profilers have stopped theirs.
#[inline(always)]
fn look_at(report: &[u8; REPORT_BYTES as usize]) -> bool {
    let u16_at = |at: usize| u16::from_le_bytes([report[at], report[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    if u16_at(2) != LEVEL_RUNTIME {
        return false;
    }
    let (stream_id, task) = match u32_at(4) {
        TYPE_TASK => (u32::from(u16_at(26)), u32_at(28)),
        TYPE_TASK_V2 => (u32_at(28), u32_at(32)),
        TYPE_STREAM_EXPANSION => {
            HAS_EXPANDED_STREAMS.store(report[24] == 1, Ordering::Relaxed);
            return IS_ASKING.get();
        }
        _ => return false,
    };
    let device = u16_at(24);
    let hash = u64::from(u32_at(40)) | u64::from(u32_at(44)) << 32;
    if hash != 0 && state::records_everything() {
        let is_new = tasks::is_new(device, stream_id, task, u32_at(4) == TYPE_TASK_V2);
        if is_new {
            record_launch(device, stream_id, task, hash);
        } else if thread::is_in_launch() {
            record_captured(device, stream_id, task, hash);
        }
    }
    let bit = 1u64.checked_shl(u32::from(device)).unwrap_or(0);
    OTHERS_ARE_KNOWN.load(Ordering::Relaxed) && WANTED_BY_OTHERS.load(Ordering::Relaxed) & bit == 0
}

#[inline(always)]
fn record_launch(device: u16, stream_id: u32, task_id: u32, hash: u64) {
    let name = names::of(hash);
    launches::note(name);
    thread::record_launch(|| Fact::Kernel {
        phase: KernelPhase::Launch,
        device: Device::from_id(i64::from(device)),
        name,
        stream_id,
        task_id,
        detail: StringId::NONE,
    });
    if !kernel_channel::is_settled(device) {
        first_launch_on(device);
    }
}

/// Inside of its launch a kernel is reported a second time if it goes into a graph; later, when its stream is destroyed.
#[cold]
fn record_captured(device: u16, stream_id: u32, task_id: u32, hash: u64) {
    let (device, name) = (Device::from_id(i64::from(device)), names::of(hash));
    thread::record_own_now(|| Fact::KernelCaptured { device, name, stream_id, task_id });
}

/// A card that nobody chose before our eyes, or in a child that goes on with what its parent chose, or whose channel
/// another profiler has had.
#[cold]
fn first_launch_on(device: u16) {
    if usize::from(device) < MOST_DEVICES && kernel_channel::is_worth_opening(device) {
        USED_DEVICES.fetch_or(1 << device, Ordering::Relaxed);
        observe(1 << device);
    }
}

/// Hook of `MsprofGetHashId`.
pub unsafe extern "C-unwind" fn hash(text: *const c_char, length: usize) -> u64 {
    // SAFETY: arguments of the caller.
    unsafe { names::ask(&HASH, text, length) }
}

/// Hook of `MsprofStr2Id`.
pub unsafe extern "C-unwind" fn text_id(text: *const c_char, length: usize) -> u64 {
    // SAFETY: arguments of the caller.
    unsafe { names::ask(&TEXT_ID, text, length) }
}

/// Names of kernels by the numbers they have in reports.
mod names {
    use super::*;

    const SLOTS: usize = 1 << 16;

    struct Name {
        hash: AtomicU64,
        text: AtomicU32,
        /// Whether the number is one of ours, which nobody else knows.
        is_ours: AtomicBool,
    }

    static TABLE: [Name; SLOTS] =
        [const { Name { hash: AtomicU64::new(0), text: AtomicU32::new(0), is_ours: AtomicBool::new(false) } }; SLOTS];

    fn slots(hash: u64) -> impl Iterator<Item = &'static Name> {
        let first = (hash ^ hash >> 32) as usize;
        (0..SLOTS / 4).map(move |step| &TABLE[first.wrapping_add(step) % SLOTS])
    }

    /// The name behind a number.
    #[inline(always)]
    pub fn of(hash: u64) -> StringId {
        let first = &TABLE[(hash ^ hash >> 32) as usize % SLOTS];
        if first.hash.load(Ordering::Acquire) == hash && first.text.load(Ordering::Acquire) != 0 {
            return StringId(first.text.load(Ordering::Relaxed));
        }
        search(hash)
    }

    #[cold]
    #[inline(never)]
    fn search(hash: u64) -> StringId {
        for name in slots(hash) {
            match name.hash.load(Ordering::Acquire) {
                0 => break,
                known if known == hash && name.text.load(Ordering::Acquire) != 0 => {
                    return StringId(name.text.load(Ordering::Relaxed));
                }
                _ => {}
            }
        }
        // The runtime got the number before we were there to see the name.
        let made = errno::preserved(|| strings::intern(format!("unknown_{hash:016x}").as_bytes()));
        learn(hash, made, false);
        made
    }

    fn learn(hash: u64, text: StringId, is_ours: bool) {
        for name in slots(hash) {
            let claimed = name.hash.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire);
            if claimed.is_ok() || claimed == Err(hash) {
                name.is_ours.store(is_ours, Ordering::Relaxed);
                name.text.store(text.0, Ordering::Release);
                return;
            }
        }
        losses::count(LossReason::TableFull, 1);
    }

    /// Asks for the number of a text and remembers both. Where nobody has a number, ours is that which profilers give.
    pub unsafe fn ask(real: &'static RealFunction, text: *const c_char, length: usize) -> u64 {
        let Some(real) = real.address() else { return 0 };
        // SAFETY: the interface's function of this name has this signature; arguments are the caller's.
        let theirs = unsafe { std::mem::transmute::<*mut c_void, Hash>(real)(text, length) };
        if !are_wanted() || text.is_null() || length == 0 {
            return theirs;
        }
        let noted = std::panic::catch_unwind(|| {
            errno::preserved(|| {
                // SAFETY: as long as it says.
                let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
                let hash = if theirs != 0 { theirs } else { two_polynomials(bytes) };
                learn(hash, strings::intern(bytes), theirs == 0);
                hash
            })
        });
        noted.unwrap_or(theirs)
    }

    /// Tells a profiler that begins the names for which it will only see our numbers.
    #[cold]
    pub fn tell(real: &'static RealFunction) {
        let Some(real) = real.address() else { return };
        for name in TABLE.iter().filter(|name| name.is_ours.load(Ordering::Relaxed)) {
            strings::with_text(StringId(name.text.load(Ordering::Acquire)), |bytes| {
                // SAFETY: the interface's function of this name has this signature; the text is as long as it says.
                unsafe { std::mem::transmute::<*mut c_void, Hash>(real)(bytes.as_ptr().cast(), bytes.len()) };
            });
        }
    }

    /// The number that CANN's profiler gives a text.
    fn two_polynomials(bytes: &[u8]) -> u64 {
        let polynomial = |factor: u32| {
            bytes.iter().fold(0u32, |hash, byte| hash.wrapping_mul(factor).wrapping_add(u32::from(*byte)))
        };
        let hash = u64::from(polynomial(29)) << 32 | u64::from(polynomial(131));
        hash.max(1)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn numbers_are_those_of_the_profiler() {
            assert_eq!(two_polynomials(b"ab"), (97 * 29 + 98) << 32 | (97 * 131 + 98));
        }

        #[test]
        fn names_are_found_by_number_also_where_slots_collide() {
            for index in 1..2_000u64 {
                learn(index << 40 | 5, StringId(index as u32), true);
            }
            for index in 1..2_000u64 {
                assert_eq!(of(index << 40 | 5), StringId(index as u32));
            }
        }
    }
}

/// The latest task of each stream, by which a second report of the same task is known.
mod tasks {
    use std::sync::atomic::{AtomicU64, Ordering};

    const SLOTS: usize = 1 << 12;
    /// Streams whose slots collide look this far.
    const MOST_STEPS: usize = 16;
    /// Reports of several threads on one stream may come this many tasks too late.
    const DISORDER: u32 = 1 << 10;
    /// Set where the latest task was reported in the newer form only, so far.
    const IS_NEWER_FORM: u64 = 1 << 63;

    /// Key of the stream plus one in the high half, the task in the low one.
    static LATEST: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

    /// Notes a task. False for the second of the two reports of one task, one in each form; usually that in the newer form
    /// is the second.
    #[inline(always)]
    pub fn is_new(device: u16, stream_id: u32, task: u32, is_newer_form: bool) -> bool {
        let key = (u64::from(u32::from(device) << 20 ^ stream_id) + 1) << 32;
        let form = if is_newer_form { IS_NEWER_FORM } else { 0 };
        let latest = key | form | u64::from(task);
        let first = (key >> 32) as usize;
        for step in 0..MOST_STEPS {
            let slot = &LATEST[first.wrapping_add(step) % SLOTS];
            let known = slot.load(Ordering::Relaxed);
            if (known & !IS_NEWER_FORM) >> 32 << 32 == key {
                let behind = (known as u32).wrapping_sub(task);
                if is_newer_form && behind < u32::MAX / 2 {
                    return false;
                }
                if behind == 0 || behind >= DISORDER {
                    slot.store(latest, Ordering::Relaxed);
                }
                return behind != 0 || known & IS_NEWER_FORM == 0;
            }
            let is_taken = || slot.compare_exchange(0, latest, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if known == 0 && is_taken() {
                return true;
            }
        }
        !is_newer_form
    }

    #[cfg(test)]
    mod tests {
        use super::is_new;

        #[test]
        fn a_second_report_of_a_task_is_known() {
            assert!((0..70_000).all(|task| is_new(1, 3, task, false)));
            assert!(!is_new(1, 3, 69_999, true) && !is_new(1, 3, 69_000, true));
            assert!(is_new(1, 3, 70_000, true) && is_new(1, 4, 69_999, true) && is_new(2, 3, 5, true));
            // The stream is gone and another has its number.
            assert!(is_new(1, 3, 0, false) && !is_new(1, 3, 0, true) && is_new(1, 3, 1, true));
            assert!(is_new(1, 3, 0, false) && is_new(1, 3, 0, false));
        }

        #[test]
        fn whichever_form_comes_first() {
            for task in 0..10 {
                assert!(is_new(4, 7, task, true) && !is_new(4, 7, task, false) && !is_new(4, 7, task, true), "{task}");
            }
            assert!(is_new(4, 7, 10, false) && !is_new(4, 7, 10, true));
        }
    }
}

//! What every thread has: its chunk of the trace, its clock, its current device.
//!
//! All of it lives in thread-local storage that is constant at first and has no destructor, so it
//! can be used at any moment of a thread's life, in signal handlers and in destructors.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use msmemscope_courtesy::signals_blocked;
use msmemscope_event::{Device, Fact, Framework, LossReason, StackId, StringId};
use msmemscope_trace::writer::Chunk;

use crate::open_labels::{OpenLabel, OpenLabels};
use crate::process::{Process, Visit};
use crate::stacks::{self, Stacks};
use crate::ticks::QuickClock;
use crate::workplaces::{Taken, Workplaces};
use crate::{clock, errno, failures, losses, message, owner, process, requests, stack_room, state};

/// No thread has written under this generation.
const NO_GENERATION: u64 = u64::MAX;

/// The time of what happens in a thread for whose records the trace has no room any more. They are only counted: no clock
/// is read and no stack is taken for them.
const LOST_NS: u64 = u64::MAX;

/// From the moment of an event until it is written down passes less than this, unless the process is stopped.
const LONGEST_EVENT_NS: u64 = 100_000_000;

/// Stack that must be left to get another chunk.
const NEW_CHUNK_BYTES: usize = 3 << 10;
/// Stack that must be left to begin a recording.
const NEW_TRACE_BYTES: usize = 8 << 10;

/// Whether this thread's current device is known.
#[derive(Clone, Copy)]
pub enum CurrentDevice {
    /// Nobody was asked yet.
    NotAsked,
    /// The answer.
    Known(Device),
}

/// An operator, as its start is written down.
#[derive(Clone, Copy)]
pub struct StartedOperator {
    /// Who runs it.
    pub framework: Framework,
    /// Its name.
    pub name: StringId,
    /// What else is known.
    pub detail: StringId,
}

impl StartedOperator {
    const NONE: Self = Self { framework: Framework::Aten, name: StringId::NONE, detail: StringId::NONE };
}

struct Context {
    /// The recording that knows this thread; differs from the current one after a fork.
    generation: Cell<u64>,
    last_stamp_ns: Cell<u64>,
    quick_clock: QuickClock,
    /// When the innermost launch of kernels began that this thread is in; zero if it is in none.
    launch_began_ns: Cell<u64>,
    device: Cell<CurrentDevice>,
    started_operator: Cell<StartedOperator>,
    started_ns: Cell<u64>,
    /// What the latest operator works on, as far as that is known.
    operator_device: Cell<Device>,
    /// Whether the latest operator is not written down yet. The thread's own desk is reserved for it as long, so that
    /// only those who find that taken have to ask.
    operator_waits: Cell<bool>,
    open_labels: OpenLabels,
    /// Whether a trace had no room for it any more.
    has_stopped: Cell<bool>,
    /// The recording of that trace.
    stopped_generation: Cell<u64>,
    /// Whether its destructors run, and nobody will call us again when the last of them has recorded something.
    is_ending: Cell<bool>,
    desks: Workplaces<Desk>,
}

/// Where a record is written: the chunk it goes into.
struct Desk {
    /// The recording that `chunk` belongs to; differs from the current one after a fork, or when it has moved.
    generation: Cell<u64>,
    /// That recording.
    process: Cell<Option<&'static Process>>,
    /// Where the chunk is noted.
    live_place: Cell<Option<usize>>,
    chunk: UnsafeCell<Option<Chunk>>,
}

thread_local! {
    static CONTEXT: Context = const {
        Context {
            generation: Cell::new(NO_GENERATION),
            last_stamp_ns: Cell::new(0),
            quick_clock: QuickClock::new(),
            launch_began_ns: Cell::new(0),
            device: Cell::new(CurrentDevice::NotAsked),
            started_operator: Cell::new(StartedOperator::NONE),
            started_ns: Cell::new(0),
            operator_device: Cell::new(Device::Unknown),
            operator_waits: Cell::new(false),
            open_labels: OpenLabels::new(),
            has_stopped: Cell::new(false),
            stopped_generation: Cell::new(NO_GENERATION),
            is_ending: Cell::new(false),
            desks: Workplaces::new(Desk::new()),
        }
    };
}

/// What the calling thread has. Not lent to a closure, so that the compiler knows at every call what is written.
#[inline(always)]
fn context() -> &'static Context {
    // SAFETY: lives as long as the calling thread and has no destructor; no caller hands it to another.
    CONTEXT.with(|context| unsafe { &*std::ptr::from_ref(context) })
}

/// Key whose destructor hands on the chunk of an ending thread, plus one; zero if there is none.
static END_KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key. Early, so that it is among those that need no memory of their own.
pub fn prepare() {
    let mut key = 0;
    // SAFETY: `key` outlives the call and the destructor has the right form.
    if unsafe { libc::pthread_key_create(&mut key, Some(end)) } == 0 {
        END_KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// The time of an event of this thread: now, and later than every earlier stamp of this thread, so
/// that coarse clocks do not blur the order of its events.
#[inline]
pub fn stamp() -> u64 {
    let context = context();
    if context.has_stopped() {
        return LOST_NS;
    }
    let stamp_ns = clock::monotonic_ns().max(context.last_stamp_ns.get() + 1);
    context.last_stamp_ns.set(stamp_ns);
    stamp_ns
}

/// The time of something that concerns this thread only, such as a call: as [`stamp`], but quicker, and perhaps some
/// nanoseconds off what other threads would say.
#[inline(always)]
fn quick_stamp() -> u64 {
    let context = context();
    if context.has_stopped() {
        return LOST_NS;
    }
    let stamp_ns = context.quick_clock.monotonic_ns().max(context.last_stamp_ns.get() + 1);
    context.last_stamp_ns.set(stamp_ns);
    stamp_ns
}

/// The time of another event of the same message: right after the previous stamp of this thread.
#[inline]
pub fn following_stamp() -> u64 {
    let context = context();
    if context.has_stopped() {
        return LOST_NS;
    }
    let stamp_ns = context.last_stamp_ns.get() + 1;
    context.last_stamp_ns.set(stamp_ns);
    stamp_ns
}

/// Writes down a fact that happens now.
#[inline(always)]
pub fn record_now(fact: &Fact<'_>) -> bool {
    record(stamp(), fact)
}

/// Writes down what a thread does itself now. `make` says it, perhaps twice: the compiler then knows at
/// the place of writing which fact it is.
#[inline(always)]
pub fn record_own_now<'a>(make: impl Fn() -> Fact<'a>) -> bool {
    record_made(quick_stamp(), Stacks::NONE, make)
}

/// Calls a function that launches kernels, which may call another such function. What it launches is written down with
/// the moment at which it was called: when the runtime reports a launch, the card may have been at work for long.
#[inline(always)]
pub fn in_launch<Value>(launch: impl FnOnce() -> Value) -> Value {
    /// Whoever leaves by an exception has left the launch as well.
    struct Launching {
        outer_ns: u64,
    }
    impl Drop for Launching {
        fn drop(&mut self) {
            context().launch_began_ns.set(self.outer_ns);
        }
    }
    let _launching = Launching { outer_ns: context().launch_began_ns.replace(quick_stamp()) };
    launch()
}

/// Whether this thread is inside of a function that launches kernels.
#[inline(always)]
pub fn is_in_launch() -> bool {
    context().launch_began_ns.get() != 0
}

/// Writes down a kernel that this thread launches, see [`in_launch`]. `make` as for [`record_own_now`].
#[inline(always)]
pub fn record_launch<'a>(make: impl Fn() -> Fact<'a>) -> bool {
    let context = context();
    let began_ns = context.launch_began_ns.get();
    let stamp_ns = match began_ns {
        0 => quick_stamp(),
        _ if began_ns == context.last_stamp_ns.get() => began_ns,
        // Something else was written down in between, and records of a thread are in order.
        _ => following_stamp(),
    };
    record_made(stamp_ns, Stacks::NONE, make)
}

/// Writes down a memory event that happens now, with its stacks.
#[inline(always)]
pub fn record_event_now(fact: &Fact<'_>) {
    record_event(stamp(), fact);
}

/// Writes down a memory event that happened at a moment taken from [`stamp`], with its stacks.
#[inline(always)]
pub fn record_event(monotonic_ns: u64, fact: &Fact<'_>) {
    if monotonic_ns == LOST_NS {
        lost();
        return;
    }
    let is_allocation =
        matches!(fact, Fact::Allocation { .. } | Fact::AllocationOnStream { .. } | Fact::AllocationWithHandle { .. });
    if stacks::are_wanted(monotonic_ns, is_allocation) {
        record_event_with_stacks(monotonic_ns, is_allocation, fact);
    } else {
        record(monotonic_ns, fact);
    }
}

/// Apart, so that events without stacks do not pay for the possibility.
#[inline(never)]
fn record_event_with_stacks(monotonic_ns: u64, is_allocation: bool, fact: &Fact<'_>) {
    record_with_stacks(monotonic_ns, stacks::of_event(monotonic_ns, is_allocation), fact);
}

/// Writes down what a number in records stands for, at the moment of the event that needs it, which is not written yet:
/// the first record of a thread also tells which labelled regions it is in, and they are older than that event.
pub fn record_definition(fact: &Fact<'_>) -> bool {
    let latest_ns = context().last_stamp_ns.get();
    let is_of_event = clock::monotonic_ns().saturating_sub(latest_ns) < LONGEST_EVENT_NS;
    record(if is_of_event { latest_ns } else { stamp() }, fact)
}

/// Writes down that an operator touches memory now, with the line of code that called it.
pub fn record_access_now(fact: &Fact<'_>) {
    let monotonic_ns = stamp();
    let stacks = if monotonic_ns == LOST_NS { Stacks::NONE } else { stacks::of_access(monotonic_ns) };
    record_with_stacks(monotonic_ns, stacks, fact);
}

/// Writes down a fact that happens now, with the stacks an allocation would have.
pub fn record_with_stacks_now(fact: &Fact<'_>) {
    let monotonic_ns = stamp();
    if monotonic_ns == LOST_NS {
        lost();
    } else {
        record_event_with_stacks(monotonic_ns, true, fact);
    }
}

/// Writes down something rare, such as that an allocation has just failed, with stacks whoever asked for them.
#[cold]
pub fn record_rare_now(fact: &Fact<'_>) {
    let monotonic_ns = stamp();
    let stacks = if monotonic_ns == LOST_NS { Stacks::NONE } else { stacks::of_failure(monotonic_ns) };
    record_with_stacks(monotonic_ns, stacks, fact);
}

/// Writes down a fact that happened at a moment taken from [`stamp`]. False if it is lost.
#[inline(always)]
pub fn record(monotonic_ns: u64, fact: &Fact<'_>) -> bool {
    record_with_stacks(monotonic_ns, Stacks::NONE, fact)
}

#[inline(always)]
fn record_with_stacks(monotonic_ns: u64, stacks: Stacks, fact: &Fact<'_>) -> bool {
    record_made(monotonic_ns, stacks, || *fact)
}

#[inline(always)]
fn record_made<'a>(monotonic_ns: u64, stacks: Stacks, make: impl Fn() -> Fact<'a>) -> bool {
    if monotonic_ns == LOST_NS {
        return lost();
    }
    let context = context();
    match context.desks.take_own() {
        Some(desk) => {
            desk.append(monotonic_ns, stacks, &make()) || record_and_serve(context, desk, monotonic_ns, stacks, &make())
        }
        None => record_elsewhere(context, monotonic_ns, stacks, &make()),
    }
}

/// Counts a record for which there is no room, and sees to whoever asks for something.
#[cold]
#[inline(never)]
fn lost() -> bool {
    losses::count(LossReason::SizeLimit, 1);
    requests::serve();
    false
}

/// Writes a record for which something is missing, or behind which somebody waits who asks for something.
#[cold]
#[inline(never)]
fn record_and_serve(
    context: &Context,
    desk: Taken<'_, Desk>,
    monotonic_ns: u64,
    stacks: Stacks,
    fact: &Fact<'_>,
) -> bool {
    let is_written = if context.has_stopped() {
        losses::count(LossReason::SizeLimit, 1);
        false
    } else {
        let result = record_slowly(context, &desk, monotonic_ns, stacks, fact);
        if result == Err(LossReason::SizeLimit) {
            context.stop(&desk);
        }
        result.is_ok()
    };
    drop(desk); // What is asked for is written down, too.
    requests::serve();
    is_written
}

/// Writes a record behind an operator that waits to be written, or while another of this thread is in the making, or was
/// abandoned: a signal handler runs, or jumped
/// away, or switched to another user-level thread.
#[cold]
#[inline(never)]
fn record_elsewhere(context: &Context, monotonic_ns: u64, stacks: Stacks, fact: &Fact<'_>) -> bool {
    if let Some(desk) = context.waiting_operator_desk() {
        context.write_operator(&desk);
        return desk.append(monotonic_ns, stacks, fact) || record_and_serve(context, desk, monotonic_ns, stacks, fact);
    }
    if context.has_stopped() {
        losses::count(LossReason::SizeLimit, 1);
        return false;
    }
    match errno::preserved(|| context.desks.take_spare(Desk::new)) {
        Some(desk) => {
            desk.append(monotonic_ns, stacks, fact) || record_slowly(context, &desk, monotonic_ns, stacks, fact).is_ok()
        }
        None => {
            losses::count(LossReason::Reentered, 1);
            false
        }
    }
}

impl Desk {
    const fn new() -> Self {
        Self {
            generation: Cell::new(NO_GENERATION),
            process: Cell::new(None),
            live_place: Cell::new(None),
            chunk: UnsafeCell::new(None),
        }
    }

    /// The chunk at this desk.
    ///
    /// # Safety
    /// Only by whoever has taken the desk.
    #[expect(clippy::mut_from_ref, reason = "a desk is taken by one record at a time")]
    #[inline(always)]
    unsafe fn chunk(&self) -> &mut Option<Chunk> {
        // SAFETY: promised by the caller; no other thread ever sees this cell.
        unsafe { &mut *self.chunk.get() }
    }

    /// Appends to the current chunk if it belongs to this recording and has room, and nobody asks for anything. The desk
    /// must be taken.
    #[inline(always)]
    fn append(&self, monotonic_ns: u64, stacks: Stacks, fact: &Fact<'_>) -> bool {
        if self.generation.get() != owner::generation() {
            return false;
        }
        // SAFETY: the desk is taken.
        match unsafe { self.chunk() } {
            Some(chunk) if !chunk.is_request_waiting() => {
                chunk.append(monotonic_ns, stacks.native, stacks.python, fact)
            }
            _ => false,
        }
    }
}

impl Context {
    /// Whether the recording knows this thread; labels alone are no reason to begin one.
    fn tells_labels(&self) -> bool {
        let is_current = self.generation.get() == owner::generation();
        if !is_current {
            self.open_labels.begin_recording();
        }
        is_current && state::records_blocks()
    }
}

impl Context {
    /// Whether the trace has no room for this thread's records any more.
    #[inline(always)]
    fn has_stopped(&self) -> bool {
        self.has_stopped.get() && self.remains_stopped()
    }

    /// A recording that began since, as that of a forked child, has room.
    #[cold]
    #[inline(never)]
    fn remains_stopped(&self) -> bool {
        self.has_stopped.set(self.stopped_generation.get() == owner::generation());
        self.has_stopped.get()
    }

    /// The trace has no room for records of this thread any more. What is left of its chunk goes to others, and nothing
    /// is written at its own desk from now on.
    #[cold]
    fn stop(&self, own_desk: &Taken<'_, Desk>) {
        let generation = owner::generation();
        errno::aside(|| signals_blocked(|| hand_on(own_desk)));
        self.stopped_generation.set(generation);
        self.has_stopped.set(true);
    }

    /// The desk that is reserved for an operator that waits, if one does. It waits no longer then.
    fn waiting_operator_desk(&self) -> Option<Taken<'_, Desk>> {
        self.operator_waits.replace(false).then(|| self.desks.reserved_own())
    }

    /// Writes down the operator that waited. By now it has chosen its device, if that is another than its thread's.
    fn write_operator(&self, desk: &Taken<'_, Desk>) {
        if let (Device::Unknown, CurrentDevice::Known(device)) = (self.operator_device.get(), self.device.get()) {
            self.operator_device.set(device);
        }
        let StartedOperator { framework, name, detail } = self.started_operator.get();
        let fact = Fact::OperatorBegin { framework, device: self.operator_device.get(), name, detail };
        let started_ns = self.started_ns.get();
        if started_ns == LOST_NS {
            losses::count(LossReason::SizeLimit, 1);
            return;
        }
        let _ = desk.append(started_ns, Stacks::NONE, &fact)
            || record_slowly(self, desk, started_ns, Stacks::NONE, &fact).is_ok();
    }

    /// The latest operator waits at the thread's own desk until something else is written down.
    fn let_operator_wait(&self, desk: Taken<'_, Desk>) {
        self.started_ns.set(quick_stamp());
        compiler_fence(Ordering::SeqCst); // A signal handler that finds it waiting finds all of it.
        self.operator_waits.set(true);
        desk.reserve();
    }
}

/// An operator begins, on this device. If that is unknown it shows inside of the operator: frameworks choose the device of
/// the tensors if the thread's is another. It is written down then with the next fact of its thread, with its own time.
pub fn begin_operator(operator: StartedOperator, device: Device) {
    let context = context();
    if let Some(desk) = context.waiting_operator_desk() {
        context.write_operator(&desk);
    }
    let own = context.desks.take_own();
    match own {
        Some(desk) if device == Device::Unknown && !context.is_ending.get() => {
            context.started_operator.set(operator);
            context.operator_device.set(device);
            context.let_operator_wait(desk);
        }
        own => {
            drop(own);
            context.operator_device.set(device);
            let StartedOperator { framework, name, detail } = operator;
            record_own_now(|| Fact::OperatorBegin { framework, device, name, detail });
        }
    }
}

/// An operator ends, on the device on which it began.
pub fn end_operator(operator: StartedOperator) {
    let context = context();
    if let Some(desk) = context.waiting_operator_desk() {
        context.write_operator(&desk);
    }
    let (StartedOperator { framework, name, detail }, device) = (operator, context.operator_device.get());
    record_own_now(|| Fact::OperatorEnd { framework, device, name, detail });
}

/// Memory of a device is touched: if an operator waits, this is its device.
pub fn operator_touches(device: Device) {
    let context = context();
    let is_known = context.operator_device.get() != Device::Unknown;
    if context.operator_waits.get() && !is_known && matches!(device, Device::Npu(_)) {
        context.operator_device.set(device);
    }
}

/// Writes down that the runtime came up or that this thread chose a device. An operator that waits waits on if that is the
/// first choice: the first operator of a job brings up the runtime, chooses a default device and only then its own.
pub fn record_system_now(fact: &Fact<'_>, is_first_choice: bool) {
    let context = context();
    let desk = if is_first_choice { context.waiting_operator_desk() } else { None };
    let has_waited = desk.is_some();
    drop(desk);
    record_now(fact);
    if has_waited && let Some(desk) = context.desks.take_own() {
        context.let_operator_wait(desk);
    }
}

#[cold]
#[inline(never)]
fn record_slowly(
    context: &Context,
    desk: &Taken<'_, Desk>,
    monotonic_ns: u64,
    stacks: Stacks,
    fact: &Fact<'_>,
) -> Result<(), LossReason> {
    let lost = |reason| {
        losses::count(reason, 1);
        Err(reason)
    };
    if let Some(reason) = failures::unavailable(monotonic_ns) {
        return lost(reason);
    }
    let needed_bytes = if process::existing().is_some() { NEW_CHUNK_BYTES } else { NEW_TRACE_BYTES };
    if !stack_room::is_not_known_to_lack(needed_bytes) {
        return lost(LossReason::Other);
    }
    let work = std::panic::AssertUnwindSafe(|| {
        signals_blocked(|| append_with_room(context, desk, monotonic_ns, stacks, fact))
    });
    match errno::aside(|| std::panic::catch_unwind(work)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => lost(reason),
        Err(_) => {
            if state::disable() {
                message::say("internal error: recording stops here, the job goes on");
            }
            lost(LossReason::Internal)
        }
    }
}

/// Appends a record and gets whatever is missing for that: the trace, a chunk, room in it.
fn append_with_room(
    context: &Context,
    desk: &Taken<'_, Desk>,
    monotonic_ns: u64,
    stacks: Stacks,
    fact: &Fact<'_>,
) -> Result<(), LossReason> {
    let visit = Visit::current(monotonic_ns)?;
    let process = visit.process();
    // SAFETY: the desk is taken.
    let slot = unsafe { desk.chunk() };
    if desk.generation.get() != process.generation {
        let left = slot.take();
        if let Some(before) = desk.process.replace(Some(process)) {
            before.leave(left, desk.live_place.take());
        }
        desk.generation.set(process.generation);
    }
    if context.generation.get() != process.generation {
        context.generation.set(process.generation);
        context.open_labels.begin_recording();
    }
    let mut is_first = slot.is_none();
    for _ in 0..2 {
        if slot.is_none() {
            let chunk = process.chunk_for_thread(thread_id(), monotonic_ns, is_first)?;
            desk.live_place.set(process.note_live(&chunk));
            *slot = Some(chunk);
            expect_end();
        }
        if let Some(chunk) = slot.as_mut()
            && append_open_labels(context, chunk, monotonic_ns)
            && chunk.append(monotonic_ns, stacks.native, stacks.python, fact)
        {
            if context.is_ending.get() {
                hand_on(desk);
            }
            return Ok(());
        }
        if let Some(full) = slot.take() {
            process.forget_live(desk.live_place.take());
            process.trace.seal_chunk(full);
            is_first = false;
        }
    }
    Err(LossReason::Other)
}

/// Tells the recording which labelled regions this thread is in, as far as it does not know. False if there is no room.
fn append_open_labels(context: &Context, chunk: &mut Chunk, monotonic_ns: u64) -> bool {
    while let Some(label) = context.open_labels.next_unrecorded() {
        if !chunk.append(monotonic_ns, StackId::NONE, StackId::NONE, &label.push()) {
            return false;
        }
        context.open_labels.note_recorded();
    }
    true
}

/// This thread enters a labelled region. A recording that knows the thread is told now, another with its next fact.
pub fn enter_region(label: OpenLabel) {
    let context = context();
    let is_in_order = context.tells_labels() && context.open_labels.next_unrecorded().is_none();
    let is_written = is_in_order && record_now(&label.push());
    if context.open_labels.enter(label) && is_written {
        context.open_labels.note_recorded();
    }
}

/// This thread leaves a labelled region.
pub fn leave_region(label: OpenLabel) {
    let context = context();
    let tells = context.tells_labels();
    if context.open_labels.leave(label) && tells {
        record_now(&label.pop());
    }
}

/// Kernel id of this thread.
pub fn thread_id() -> u32 {
    // SAFETY: always succeeds.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as u32
}

/// Has [`end`] called when this thread ends.
fn expect_end() {
    if let Some(key) = END_KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key exists for the life of the process; the value only has to be non-null.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<c_void>()) };
    }
}

/// Called when a thread that has a chunk ends. What it records afterwards goes into chunks it has for that record only.
unsafe extern "C" fn end(_: *mut c_void) {
    let context = context();
    if let Some(desk) = context.waiting_operator_desk() {
        context.write_operator(&desk);
    }
    context.is_ending.set(true);
    context.desks.clear_up(|desk| errno::aside(|| hand_on(desk)));
    stacks::forget_thread();
}

/// Leaves the chunk at a desk, which must be taken, to another thread.
fn hand_on(desk: &Desk) {
    // SAFETY: the desk is taken.
    let chunk = unsafe { desk.chunk() }.take();
    let Some(process) = desk.process.get() else { return };
    let visit = Visit::of(process);
    match chunk {
        Some(chunk) if visit.is_some() => {
            process.forget_live(desk.live_place.take());
            process.adopt(chunk);
        }
        left => process.leave(left, desk.live_place.take()),
    }
}

/// Remembers the device this thread has just chosen.
pub fn set_device(device: Device) {
    context().device.set(CurrentDevice::Known(device));
}

/// The device this thread works on.
pub fn device() -> CurrentDevice {
    context().device.get()
}

//! The recorder's side of the control table: what the Python package and other guests can ask for.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use msmemscope_control::{
    AccessFact, AllocationFact, BlockObserver, CollectionPlan, ControlTable, LaunchObserver, OperatorObserver,
    PoolRefusalFact, Region, SnapshotFact, TABLE_VERSION, WatchFact,
};
use msmemscope_event::{
    AccessKind, AllocationInterface, AutogradPhase, BlockProperties, CodeId, Device, DeviceMap, Fact, Framework,
    LoopKind, LossReason, MemoryType, PageType, Pool, PoolRefusal, PoolSegment, PythonCallPhase, RecordingState,
    Severity, SnapshotNumbers, StringId,
};
use msmemscope_settings::{EventSet, LevelSet, Recording};
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;

use crate::import_tables::Redirection;
use crate::open_labels::OpenLabel;
use crate::thread::StartedOperator;
use crate::{
    acl, atb, block_observer, card, errno, hooks, import_tables, introduction, kernels, launches, lookup, losses, mstx,
    process, refusals, requests, settings, sources, state, strings, thread,
};

const VERSION_TEXT: &str = env!("CARGO_PKG_VERSION");

static TABLE: ControlTable = ControlTable {
    size_bytes: size_of::<ControlTable>() as u32,
    version: TABLE_VERSION,
    recorder_version: Region { start: VERSION_TEXT.as_ptr(), length: VERSION_TEXT.len() },
    state: current_state,
    set_state,
    configure,
    plan,
    process_directory,
    flush,
    loss_count,
    intern,
    current_device,
    step,
    mark,
    operator,
    access,
    autograd,
    allocation,
    free,
    label_push,
    label_pop,
    label_address,
    snapshot,
    python_call,
    watch,
    card_sample,
    message,
    patch_imports,
    sources: seen_sources,
    redirect_import,
    observe_blocks,
    unseen_pools,
    message_count,
    relay_mark,
    relay_range_start,
    relay_range_end,
    loop_turn,
    module,
    holder,
    place,
    failures_are_told,
    observe_launches,
    observe_operators,
    settings_text,
    answer_request,
    pool_refused,
    pool_gave_up,
    memory_fraction,
};

static STEPS: AtomicU64 = AtomicU64::new(0);

/// The table; the one entry into a loaded recorder.
pub unsafe extern "C" fn table() -> *const ControlTable {
    &TABLE
}

/// Runs what a guest asked for; a mistake of ours must not become the guest's.
fn guarded<Value>(fallback: Value, work: impl FnOnce() -> Value) -> Value {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(fallback)
}

/// Records a fact that only matters while everything is recorded.
fn record_if_on(fact: &Fact<'_>) {
    if state::records_everything() {
        thread::record_now(fact);
    }
}

fn cut(text: &[u8]) -> &[u8] {
    if text.len() > LARGEST_TEXT_BYTES {
        losses::count(LossReason::TextCut, 1);
    }
    &text[..text.len().min(LARGEST_TEXT_BYTES)]
}

unsafe extern "C" fn current_state() -> u32 {
    state::current() as u32
}

unsafe extern "C" fn set_state(code: u32) -> i32 {
    change_state(RecordingState::from_code(u64::from(code)))
}

/// Starts, pauses or stops; the errno on failure.
pub fn change_state(wanted: RecordingState) -> i32 {
    if wanted == RecordingState::On && !state::is_disabled() {
        errno::preserved(|| guarded((), process::settle_place));
    }
    if wanted != RecordingState::On {
        kernels::release();
    }
    let Some(before) = state::change(wanted) else { return libc::EPERM };
    if before != wanted && process::existing().is_some() {
        thread::record_now(&Fact::Recording { state: wanted });
    }
    if before != wanted && wanted == RecordingState::Shadow {
        state::pause_began();
    }
    if wanted == RecordingState::On {
        errno::preserved(|| guarded((), kernels::follow_settings));
    }
    if let Some(process) = process::existing() {
        process.trace.show_state(wanted);
    }
    0
}

unsafe extern "C" fn configure(text: Region) -> i32 {
    guarded(libc::EINVAL, || {
        errno::aside(|| {
            // SAFETY: lent for this call.
            let text = unsafe { text.bytes() };
            let Ok(value) = std::str::from_utf8(text) else { return libc::EINVAL };
            Recording::from_environment(value).map_or(libc::EINVAL, use_settings)
        })
    })
}

/// Puts settings in force; the errno on failure.
pub fn use_settings(recording: Recording) -> i32 {
    settings::replace(recording);
    let moved = process::follow_settings();
    kernels::follow_settings();
    moved.err().unwrap_or(0)
}

unsafe extern "C" fn settings_text(buffer: *mut u8, capacity: usize) -> usize {
    guarded(0, || {
        let text = settings::recording().to_environment();
        if text.len() <= capacity && !buffer.is_null() {
            // SAFETY: the caller's buffer has the room.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len()) };
        }
        text.len()
    })
}

unsafe extern "C" fn answer_request(number: u32, result: i32) {
    requests::answer(number, result);
}

unsafe extern "C" fn plan(plan: *mut CollectionPlan) {
    let settings = &settings::recording().settings;
    let on = state::records_everything();
    let wants = |event: EventSet| u32::from(on && settings.events.collected.contains(event));
    let level_has_operators = settings.level.contains(LevelSet::OP);
    let answer = CollectionPlan {
        operators: if level_has_operators { wants(EventSet::LAUNCH) } else { 0 },
        accesses: wants(EventSet::ACCESS),
        python_calls: wants(EventSet::TRACEBACK),
        cpu_tensors: u32::from(on && settings.devices.cpu),
    };
    if !plan.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *plan = answer };
    }
}

unsafe extern "C" fn process_directory(buffer: *mut u8, capacity: usize) -> usize {
    use std::os::unix::ffi::OsStrExt;
    let Some(process) = process::existing() else { return 0 };
    let path = process.directory().as_os_str().as_bytes();
    if path.len() <= capacity && !buffer.is_null() {
        // SAFETY: the caller's buffer has the room.
        unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), buffer, path.len()) };
    }
    path.len()
}

unsafe extern "C" fn flush() -> i32 {
    let flushed = errno::aside(|| process::existing().map_or(Ok(()), process::Process::flush));
    flushed.err().unwrap_or(0)
}

unsafe extern "C" fn loss_count(reason: u32) -> u64 {
    losses::counted(LossReason::from_code(u64::from(reason)))
}

unsafe extern "C" fn intern(text: Region) -> u32 {
    // SAFETY: lent for this call.
    guarded(0, || strings::intern(unsafe { text.bytes() }).0)
}

unsafe extern "C" fn current_device() -> u32 {
    acl::current_device().code()
}

unsafe extern "C" fn step() -> u64 {
    end_step()
}

/// A step ends here; gives its number, zero while not recording.
pub fn end_step() -> u64 {
    if !state::records_everything() {
        return 0;
    }
    let number = STEPS.fetch_add(1, Ordering::Relaxed) + 1;
    thread::record_now(&Fact::Step { device: acl::current_device(), number });
    if let Some(process) = process::existing() {
        process.trace.show_steps(number);
    }
    number
}

unsafe extern "C" fn mark(message: Region) {
    if state::records_everything() {
        let device = acl::current_device();
        // SAFETY: lent for this call.
        let message = cut(unsafe { message.bytes() });
        thread::record_now(&Fact::Mark { domain: StringId::NONE, device, message });
    }
}

unsafe extern "C" fn operator(begins: u32, framework: u32, device: u32, name: u32, detail: u32) {
    let framework = Framework::from_code(u64::from(framework));
    let device = Device::from_code(device);
    let (name, detail) = (StringId(name), StringId(detail));
    if !state::records_everything() {
        return;
    }
    match (begins, device) {
        (0, Device::Unknown) => thread::end_operator(StartedOperator { framework, name, detail }),
        (_, Device::Unknown) => {
            let operator = StartedOperator { framework, name, detail };
            thread::begin_operator(operator, acl::only_device().unwrap_or(Device::Unknown));
        }
        (0, _) => {
            thread::record_own_now(|| Fact::OperatorEnd { framework, device, name, detail });
        }
        _ => {
            thread::record_own_now(|| Fact::OperatorBegin { framework, device, name, detail });
        }
    }
}

unsafe extern "C" fn access(fact: *const AccessFact) {
    // SAFETY: null or lent for this call.
    let Some(fact) = (unsafe { fact.as_ref() }) else { return };
    if !state::records_everything() {
        return;
    }
    thread::operator_touches(Device::from_code(fact.device));
    thread::record_access_now(&Fact::Access {
        kind: AccessKind::from_code(u64::from(fact.kind)),
        framework: Framework::from_code(u64::from(fact.framework)),
        device: Device::from_code(fact.device),
        operator: StringId(fact.operator),
        address: fact.address,
        size_bytes: fact.size_bytes,
        element_type: StringId(fact.element_type),
        shape: StringId(fact.shape),
        format: StringId(fact.format),
        output_position: fact.output_position,
    });
}

unsafe extern "C" fn autograd(phase: u32, device: u32) {
    let phase = AutogradPhase::from_code(u64::from(phase));
    let fact = Fact::Autograd { phase, device: Device::from_code(device) };
    if phase != AutogradPhase::Backward {
        record_if_on(&fact);
    } else if state::records_everything() {
        // Threads of autograd have no line of the program; the one that called for the pass does.
        thread::record_with_stacks_now(&fact);
    }
}

unsafe extern "C" fn loop_turn(kind: u32, loop_id: u64) {
    let kind = LoopKind::from_code(u64::from(kind));
    record_if_on(&Fact::LoopTurn { kind, device: acl::current_device(), loop_id });
}

unsafe extern "C" fn module(begins: u32, name: u32) {
    let name = StringId(name);
    record_if_on(&if begins != 0 { Fact::ModuleBegin { name } } else { Fact::ModuleEnd { name } });
}

unsafe extern "C" fn holder(address: u64, path: u32) {
    record_if_on(&Fact::Holder { address, path: StringId(path) });
}

fn guest_properties(pool: u32, device: u32) -> BlockProperties {
    let device = Device::from_code(device);
    BlockProperties {
        pool: Pool::from_code(u64::from(pool)),
        device,
        memory_type: if device == Device::Host { MemoryType::Host } else { MemoryType::Device },
        page_type: PageType::Normal,
        interface: AllocationInterface::Framework,
        module_id: 0,
    }
}

unsafe extern "C" fn allocation(fact: *const AllocationFact) {
    // SAFETY: null or lent for this call.
    let Some(fact) = (unsafe { fact.as_ref() }) else { return };
    if state::records_blocks() {
        let properties = guest_properties(fact.pool, fact.device);
        thread::record_event_now(&Fact::Allocation { properties, address: fact.address, size_bytes: fact.size_bytes });
    }
}

unsafe extern "C" fn free(pool: u32, device: u32, address: u64) {
    if state::records_blocks() {
        thread::record_event_now(&Fact::Free { properties: guest_properties(pool, device), address });
    }
}

/// The card is asked first, as when the driver refuses. What to say about it is up to the guest, who knows more.
unsafe extern "C" fn pool_refused(pool: u32, device: u32, size_bytes: u64, is_limited: u32) {
    const OUT_OF_MEMORY: i64 = 6;
    if !state::records_everything() {
        return;
    }
    let properties = guest_properties(pool, device);
    let visible = std::env::var_os("ASCEND_RT_VISIBLE_DEVICES").unwrap_or_default();
    card::sample(DeviceMap::parse(visible.as_bytes()).physical(properties.device));
    let (flag, error) = (u64::from(is_limited), OUT_OF_MEMORY);
    thread::record_rare_now(&Fact::AllocationFailed { properties, size_bytes, flag, error });
}

/// Segments come before the refusal that they belong to.
unsafe extern "C" fn pool_gave_up(fact: *const PoolRefusalFact) {
    // SAFETY: null or lent for this call.
    let Some(fact) = (unsafe { fact.as_ref() }) else { return };
    if !state::records_everything() {
        return;
    }
    let device = Device::from_code(fact.device);
    let segments = match fact.segments.is_null() {
        true => &[],
        // SAFETY: lent for this call, that many of them.
        false => unsafe { std::slice::from_raw_parts(fact.segments, fact.segment_count) },
    };
    for segment in segments {
        let segment = PoolSegment {
            address: segment.address,
            size_bytes: segment.size_bytes,
            unused_bytes: segment.unused_bytes,
            largest_gap_bytes: segment.largest_gap_bytes,
            stream: segment.stream,
            traits: segment.traits as u32,
        };
        thread::record_now(&Fact::PoolSegment { device, segment });
    }
    let refusal = PoolRefusal {
        requested_bytes: fact.requested_bytes,
        limit_bytes: fact.limit_bytes,
        reserved_bytes: fact.reserved_bytes,
        free_bytes: fact.free_bytes,
        total_bytes: fact.total_bytes,
        stream: fact.stream,
        segments: segments.len() as u64,
    };
    thread::record_rare_now(&Fact::PoolRefusal { device, refusal });
}

unsafe extern "C" fn memory_fraction(device: u32, fraction: f64) {
    let visible = std::env::var_os("ASCEND_RT_VISIBLE_DEVICES").unwrap_or_default();
    let device = DeviceMap::parse(visible.as_bytes()).physical(Device::from_code(device));
    guarded((), || introduction::set_memory_fraction(device, fraction));
}

unsafe extern "C" fn label_push(level: u32, label: u32) {
    if !state::is_disabled() {
        thread::enter_region(OpenLabel { level, label: StringId(label) });
    }
}

unsafe extern "C" fn label_pop(level: u32, label: u32) {
    if !state::is_disabled() {
        thread::leave_region(OpenLabel { level, label: StringId(label) });
    }
}

/// Blocks from before the start have labels too. Without a recording there is no block that could.
unsafe extern "C" fn label_address(address: u64, level: u32, label: u32) {
    if state::records_blocks() && process::existing().is_some() {
        thread::record_now(&Fact::LabelAddress { address, level, label: StringId(label) });
    }
}

unsafe extern "C" fn snapshot(fact: *const SnapshotFact) {
    // SAFETY: null or lent for this call.
    let Some(fact) = (unsafe { fact.as_ref() }) else { return };
    let [reserved, maximum_reserved, allocated, maximum_allocated, total, free] = fact.numbers;
    let numbers = SnapshotNumbers {
        reserved_bytes: reserved,
        maximum_reserved_bytes: maximum_reserved,
        allocated_bytes: allocated,
        maximum_allocated_bytes: maximum_allocated,
        total_bytes: total,
        free_bytes: free,
    };
    if !state::is_disabled() {
        state::note_wanted();
        let (device, name) = (Device::from_code(fact.device), StringId(fact.name));
        thread::record_rare_now(&Fact::Snapshot { device, name, numbers });
    }
}

/// Code objects are named by string only.
unsafe extern "C" fn python_call(phase: u32, _code: *const c_void, name: u32) {
    if !state::is_disabled() {
        state::note_wanted();
        let phase = PythonCallPhase::from_code(u64::from(phase));
        thread::record_own_now(|| Fact::PythonCall { phase, code: CodeId::NONE, name: StringId(name) });
    }
}

unsafe extern "C" fn watch(fact: *const WatchFact) {
    // SAFETY: null or lent for this call.
    let Some(fact) = (unsafe { fact.as_ref() }) else { return };
    if !state::records_everything() {
        return;
    }
    thread::record_with_stacks_now(&Fact::Watch {
        name: StringId(fact.name),
        operator: StringId(fact.operator),
        output_position: fact.output_position,
        after: fact.after != 0,
        address: fact.address,
        size_bytes: fact.size_bytes,
        content_hash: fact.content_hash,
        // SAFETY: lent for this call.
        detail: cut(unsafe { fact.detail.bytes() }),
    });
}

unsafe extern "C" fn card_sample(device: u32, used: u64, process: u64, total: u64) {
    let device = Device::from_code(device);
    record_if_on(&Fact::CardSample { device, used_bytes: used, process_bytes: process, total_bytes: total });
}

unsafe extern "C" fn message(severity: u32, text: Region) {
    if process::existing().is_some() && !state::is_disabled() {
        let severity = Severity::from_code(u64::from(severity));
        // SAFETY: lent for this call.
        thread::record_now(&Fact::Message { severity, text: cut(unsafe { text.bytes() }) });
    }
}

unsafe extern "C" fn patch_imports() -> u64 {
    guarded(0, || {
        // Libraries that look functions up by name have the C library's `dlsym`, which comes before ours.
        let dlsym = lookup::dlsym as unsafe extern "C" fn();
        let mut redirections = vec![Redirection { name: c"dlsym", replacement: dlsym as *const c_void }];
        redirections.extend(hooks::hooks().filter_map(hooks::Hook::redirection));
        redirections.extend(atb::redirections());
        import_tables::redirect(&redirections) as u64
    })
}

unsafe extern "C" fn seen_sources() -> u32 {
    sources::seen()
}

unsafe extern "C" fn redirect_import(name: Region, replacement: *const c_void) -> u64 {
    guarded(0, || {
        // SAFETY: lent for this call.
        match CString::new(unsafe { name.bytes() }) {
            Ok(name) => import_tables::redirect(&[Redirection { name: &name, replacement }]) as u64,
            Err(_) => 0,
        }
    })
}

unsafe extern "C" fn unseen_pools(text: Region) {
    // SAFETY: lent for this call.
    guarded((), || introduction::set_unseen_pools(cut(unsafe { text.bytes() })));
}

unsafe extern "C" fn place(rank: u32, world_size: u32) {
    guarded((), || introduction::set_place(rank, world_size));
}

unsafe extern "C" fn failures_are_told() {
    refusals::leave_to_guest();
}

unsafe extern "C" fn message_count() -> u64 {
    mstx::message_count()
}

unsafe extern "C" fn relay_mark(domain: Region, message: Region) {
    // SAFETY: lent for this call.
    guarded((), || unsafe { mstx::relay_mark(domain.bytes(), cut(message.bytes())) });
}

unsafe extern "C" fn relay_range_start(domain: Region, message: Region) -> u64 {
    // SAFETY: lent for this call.
    guarded(0, || unsafe { mstx::relay_range_start(domain.bytes(), cut(message.bytes())) })
}

unsafe extern "C" fn relay_range_end(domain: Region, range_id: u64) {
    // SAFETY: lent for this call.
    guarded((), || unsafe { mstx::relay_range_end(domain.bytes(), range_id) });
}

unsafe extern "C" fn observe_blocks(observer: Option<BlockObserver>) {
    block_observer::set(observer);
}

unsafe extern "C" fn observe_launches(observer: Option<LaunchObserver>) {
    guarded((), || launches::set_observer(observer));
}

unsafe extern "C" fn observe_operators(observer: Option<OperatorObserver>) {
    guarded((), || atb::set_observer(observer));
}

//! Looks at watched blocks before and after every kernel, on the thread that launches it. What a kernel may write is what
//! the operators declare that are under way.

use std::ffi::c_void;
use std::sync::Mutex;

use msmemscope_control::Region;
use msmemscope_event::ByteRange;

use super::{blocks, lock, thread_id, with_session};
use crate::launches::HeldLooks;
use crate::live_blocks::LiveBlocks;
use crate::session::Session;
use crate::surroundings::{Launch, OperatorCall};

/// The recorder's news about launches.
///
/// # Safety
/// As [`LaunchObserver`](msmemscope_control::LaunchObserver) says.
pub unsafe extern "C" fn observe(begins: u32, stream: *mut c_void, name: Region) {
    with_session(|state| {
        // SAFETY: lent for this call.
        let name = String::from_utf8_lossy(unsafe { name.bytes() });
        match begins {
            0 => launched(state, stream, &name),
            _ => launches(state, stream),
        }
    });
}

/// What the next kernel of a thread is called until its name is known.
fn announced(thread_id: u32) -> String {
    format!("the next kernel of thread {thread_id}")
}

/// Calls `look` with the state and everything it needs to know of a launch, when the stream has nothing left to do.
fn around_launch(
    state: &Mutex<Session>,
    stream: *mut c_void,
    name: &str,
    number: impl FnOnce(&mut Session) -> u64,
    look: impl FnOnce(&OperatorCall<'_>, &LiveBlocks, &mut Session),
) {
    let thread_id = thread_id();
    let (is_needed, runtime) = {
        let mut state = lock(state);
        // What was seen before the launch waits for its name, also where that was the last look.
        let is_held = state.before_launches.contains_key(&thread_id);
        (is_held || state.is_watching() || state.explicit.is_waiting(), state.process.runtime())
    };
    // Nobody is kept from anything meanwhile.
    // SAFETY: the stream that the job gave to the launching function.
    if !is_needed || !runtime.is_some_and(|runtime| unsafe { runtime.wait_for(stream) }) {
        return;
    }
    let mut state = lock(state);
    let number = number(&mut state);
    let blocks = blocks();
    let operator = state.launcher(thread_id).map(|operator| operator.name.clone()).unwrap_or_default();
    // Of several operators under way it is not always known which one launches; none may be blamed for another's work.
    let writes: Vec<ByteRange> = state.open.iter().flat_map(|operator| &operator.writes).copied().collect();
    let newest = state.open.iter().map(|operator| operator.newest_generation).min();
    let newest_generation = newest.unwrap_or_else(|| blocks.newest_generation());
    let device = state.process.current_device();
    let launch = Some(Launch { operator: &operator, newest_generation });
    let call = OperatorCall { name, number, device, thread_id, writes: &writes, is_active: true, launch };
    look(&call, &blocks, &mut state);
}

/// A kernel is about to be launched.
fn launches(state: &Mutex<Session>, stream: *mut c_void) {
    let name = announced(thread_id());
    around_launch(
        state,
        stream,
        &name,
        |_| 0,
        |call, blocks, state| {
            let Session { process, explicit, hunt, before_launches, .. } = state;
            let mut held = HeldLooks::default();
            let mut holding = held.around(process);
            explicit.before_kernel(call, blocks, &mut holding);
            if let Some(hunt) = hunt {
                hunt.before_kernel(call, blocks, &mut holding);
            }
            drop(holding);
            before_launches.insert(call.thread_id, held);
        },
    );
}

/// A kernel was launched; without a name nothing was.
fn launched(state: &Mutex<Session>, stream: *mut c_void, name: &str) {
    let name = if name.is_empty() { "an unnamed kernel" } else { name };
    around_launch(
        state,
        stream,
        name,
        |state| state.next_call(name),
        |call, blocks, state| {
            let Session { process, explicit, hunt, before_launches, .. } = state;
            let announced = announced(call.thread_id);
            if let Some(held) = before_launches.remove(&call.thread_id) {
                held.release(&announced, call, process);
            }
            explicit.after_kernel(&announced, call, blocks, process);
            if let Some(hunt) = hunt {
                hunt.after_kernel(&announced, call, blocks, process);
            }
        },
    );
}

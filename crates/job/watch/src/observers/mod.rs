//! What the recorder calls by itself, on whichever thread something happens: before and after [`launches`] of kernels, and
//! around [`library_operators`], which libraries such as ATB run without a framework's dispatcher.
//!
//! There is one session for that in a process. Nobody is called while it is locked, and a panic stays here.

mod launches;
mod library_operators;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::live_blocks::LiveBlocks;
use crate::session::Session;

pub use self::launches::observe as observe_launch;
pub use self::library_operators::observe as observe_operator;

static SESSION: Mutex<Option<Arc<Mutex<Session>>>> = Mutex::new(None);
static BLOCKS: Mutex<LiveBlocks> = Mutex::new(LiveBlocks::new());

/// The session from now on.
pub fn install(session: &Arc<Mutex<Session>>) {
    *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(session));
}

/// What people are to be told by now.
pub fn take_said() -> Vec<String> {
    let session = SESSION.lock().unwrap_or_else(PoisonError::into_inner).clone();
    session.map_or_else(Vec::new, |session| lock(&session).process.take_said())
}

/// Blocks of the framework's pool, as far as somebody tells of them.
pub fn blocks() -> MutexGuard<'static, LiveBlocks> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Calls `look` with the session, unless this thread is looking already or nobody watches.
fn with_session(look: impl FnOnce(&Mutex<Session>)) {
    thread_local! {
        static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
    }
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let session = SESSION.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(session) = session.filter(|_| !IS_LOOKING.replace(true)) else { return };
        look(&session);
        IS_LOOKING.set(false);
    }));
}

fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Looks at watched blocks before and after operators that libraries run by themselves, as ATB does: inside of one of
//! PyTorch's operators, on the thread that launches for it, or on their own.
//!
//! The device must be waited for, which would end the capture of a graph with an error. PyTorch knows whether one is being
//! captured, and was asked when its operator began; without such an operator launches must be blocking, which excludes it.

use std::sync::Mutex;

use msmemscope_control::{OperatorFact, TensorFact};
use msmemscope_event::{ByteRange, Device};

use super::{blocks, lock, thread_id, with_session};
use crate::session::{OpenOperator, Session};
use crate::surroundings::{OperatorCall, Output, Surroundings};

/// A path names one call of an operator, so calls are not counted.
const ONLY_CALL: u64 = 1;

/// The recorder's news about operators of libraries.
///
/// # Safety
/// As [`OperatorObserver`](msmemscope_control::OperatorObserver) says.
pub unsafe extern "C" fn observe(begins: u32, operator: *const OperatorFact) {
    with_session(|state| {
        // SAFETY: null or lent for this call, with what it points to.
        let Some(operator) = (unsafe { operator.as_ref() }) else { return };
        // SAFETY: as above.
        let name = String::from_utf8_lossy(unsafe { operator.name.bytes() });
        let results = match operator.output_count {
            0 => &[][..],
            // SAFETY: as above.
            count => unsafe { std::slice::from_raw_parts(operator.outputs, count) },
        };
        let call = LibraryCall { name: &name, device: Device::from_code(operator.device), results };
        match begins {
            0 => call.ends(state),
            _ => call.begins(state),
        }
    });
}

struct LibraryCall<'a> {
    name: &'a str,
    device: Device,
    results: &'a [TensorFact],
}

impl LibraryCall<'_> {
    /// What it declares to write: its results, wherever on the device they are.
    fn writes(&self) -> Vec<ByteRange> {
        let on_device = self.results.iter().filter(|result| result.address != 0);
        on_device.map(|result| ByteRange::sized(result.address, result.size_bytes)).collect()
    }

    fn outputs(&self) -> Vec<Output> {
        let outputs = self.results.iter().zip(0..).map(|(result, index)| Output {
            index,
            address: result.address,
            size_bytes: result.size_bytes,
            device: self.device,
        });
        outputs.filter(|output| output.address != 0).collect()
    }

    fn call<'a>(&'a self, writes: &'a [ByteRange]) -> OperatorCall<'a> {
        OperatorCall {
            name: self.name,
            number: ONLY_CALL,
            device: self.device,
            thread_id: thread_id(),
            writes,
            is_active: true,
            launch: None,
        }
    }

    /// Waits for the device; false if nobody needs a look, or if it must not be waited for. Nobody is kept from anything
    /// meanwhile.
    fn can_look(&self, state: &Mutex<Session>) -> bool {
        let runtime = {
            let mut state = lock(state);
            let is_needed = state.is_watching() || state.explicit.starts_with(self.name);
            let enclosing = state.launcher(thread_id());
            let may_wait = enclosing.map_or(state.process.is_blocking(), |operator| operator.can_wait);
            if is_needed && may_wait { state.process.runtime() } else { None }
        };
        runtime.is_some_and(|runtime| runtime.wait_for_device())
    }

    fn begins(&self, state: &Mutex<Session>) {
        let can_look = self.can_look(state);
        let writes = self.writes();
        let mut state = lock(state);
        let blocks = blocks();
        // What is inside of it may be waited for as it may itself.
        let can_wait = state.launcher(thread_id()).map_or(state.process.is_blocking(), |operator| operator.can_wait);
        state.open.push(OpenOperator {
            thread_id: thread_id(),
            name: self.name.to_owned(),
            writes: writes.clone(),
            newest_generation: blocks.newest_generation(),
            can_wait,
        });
        state.before(&self.call(&writes), can_look, &blocks);
    }

    fn ends(&self, state: &Mutex<Session>) {
        let can_look = self.can_look(state);
        let (writes, outputs) = (self.writes(), self.outputs());
        let mut state = lock(state);
        state.after(&self.call(&writes), &outputs, can_look, &blocks());
        state.close(thread_id());
    }
}

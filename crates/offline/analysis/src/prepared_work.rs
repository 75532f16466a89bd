//! Which operator's work a thread launches that runs no operator itself.
//!
//! torch_npu runs an operator on the thread of the program, which prepares its work and puts it into a queue; a thread of
//! its own takes the work out and launches the kernels. Work is known by its address, which nobody else has until it is
//! launched. While a thread launches work, the operator that has prepared it runs there, too.

use msmemscope_event::WorkPhase;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::situation::OpenOperator;

/// Work that is known at a time. What is prepared and never launched must not pile up.
const MOST_WAITING: usize = 1 << 16;

/// Follows work from who prepares it to who launches it.
#[derive(Debug, Default)]
pub struct PreparedWork {
    /// By address: who has prepared it.
    waiting: FxHashMap<u64, OpenOperator>,
    /// Threads that launch work, on which its operator was opened for that.
    launching: FxHashSet<u32>,
}

impl PreparedWork {
    /// Work is prepared or launched by a thread with these open operators, which follow it.
    pub fn follow(&mut self, phase: WorkPhase, address: u64, thread_id: u32, operators: &mut Vec<OpenOperator>) {
        match phase {
            WorkPhase::Prepared => {
                // The address may have belonged to work that was never launched.
                self.waiting.remove(&address);
                if let Some(operator) = operators.last() {
                    if self.waiting.len() >= MOST_WAITING {
                        self.waiting.clear();
                    }
                    self.waiting.insert(address, *operator);
                }
            }
            WorkPhase::Begins => {
                let prepared = self.waiting.remove(&address);
                // Without a queue the operator is open on this very thread.
                if let Some(operator) = prepared.filter(|_| operators.is_empty()) {
                    self.launching.insert(thread_id);
                    operators.push(operator);
                }
            }
            WorkPhase::Ends => {
                if self.launching.remove(&thread_id) {
                    operators.clear();
                }
            }
            WorkPhase::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator_places::PlaceId;
    use msmemscope_event::{Framework, StringId};

    fn operator(name: u32) -> OpenOperator {
        OpenOperator { name: StringId(name), framework: Framework::Aten, place: PlaceId::default() }
    }

    #[test]
    fn a_thread_that_launches_runs_the_operator_that_has_prepared_the_work() {
        let mut work = PreparedWork::default();
        let (mut program, mut queue) = (vec![operator(1), operator(2)], Vec::new());
        work.follow(WorkPhase::Prepared, 0x10, 7, &mut program);
        program.pop();
        work.follow(WorkPhase::Prepared, 0x20, 7, &mut program);
        for (address, name) in [(0x10, 2), (0x20, 1)] {
            work.follow(WorkPhase::Begins, address, 8, &mut queue);
            assert_eq!(queue, [operator(name)]);
            work.follow(WorkPhase::Ends, address, 8, &mut queue);
            assert!(queue.is_empty());
        }
        assert_eq!(program, [operator(1)], "the program's own operators are untouched");
    }

    #[test]
    fn without_a_queue_nothing_is_opened_twice() {
        let mut work = PreparedWork::default();
        let mut program = vec![operator(1)];
        for phase in [WorkPhase::Prepared, WorkPhase::Begins, WorkPhase::Ends] {
            work.follow(phase, 0x10, 7, &mut program);
            assert_eq!(program, [operator(1)]);
        }
    }

    #[test]
    fn work_that_nobody_is_known_to_have_prepared_has_no_operator() {
        let mut work = PreparedWork::default();
        let (mut program, mut queue) = (vec![operator(1)], Vec::new());
        work.follow(WorkPhase::Prepared, 0x10, 7, &mut program);
        // It was never launched; later something else at its address is prepared outside of all operators.
        work.follow(WorkPhase::Prepared, 0x10, 7, &mut Vec::new());
        work.follow(WorkPhase::Begins, 0x10, 8, &mut queue);
        assert!(queue.is_empty());
        for address in 0..3 * MOST_WAITING as u64 {
            work.follow(WorkPhase::Prepared, address, 7, &mut program);
        }
        assert!(work.waiting.len() <= MOST_WAITING);
    }
}

//! Threads at their end, and processes that are threads in disguise.

use crate::support::{Lab, block_event_count, driver_allocation_sizes};

#[test]
fn memory_used_in_the_last_destructors_takes_no_room() {
    let lab = Lab::new();
    let program = lab.compile("late_threads.c", include_str!("../../programs/late_threads.c"), &["ascend_hal"]);
    assert_eq!(lab.same_with_and_without(&program, &[]), Vec::<String>::new());
    let trace = lab.trace();
    assert!(trace.completeness().is_complete());
    assert_eq!(block_event_count(&trace), 2 * 4 * 200);
    let chunks = trace.completeness().chunks_allocated;
    assert!(chunks < 5, "{chunks} chunks");
}

/// As documented: such children are recorded as if they were threads of their parent.
#[test]
fn children_that_share_the_memory_of_their_parent_are_recorded_with_it() {
    let lab = Lab::new();
    let program = lab.compile("shared_children.c", include_str!("../../programs/shared_children.c"), &["ascend_hal"]);
    assert_eq!(lab.same_with_and_without(&program, &[]), Vec::<String>::new());
    let trace = lab.trace();
    assert!(trace.completeness().is_complete());
    let sizes = driver_allocation_sizes(&trace);
    let counted = [100, 200, 101, 300, 102].map(|size| sizes.iter().filter(|found| **found == size).count());
    assert_eq!(counted, [10, 20, 10, 30, 10]);
}

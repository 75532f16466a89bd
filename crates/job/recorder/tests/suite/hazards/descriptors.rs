//! Descriptors belong to the job: our files are never where it looks for its own.

use crate::support::{Lab, block_event_count};

#[test]
fn a_daemon_that_prints_into_closed_streams() {
    let lab = Lab::new();
    let source = include_str!("../../programs/closed_streams.c");
    let program = lab.compile("closed_streams.c", source, &["ascend_hal"]);
    let file = lab.path().join("prints");
    for _ in 0..2 {
        let said = lab.same_with_and_without(&program, &[file.to_str().expect("a path")]);
        assert_eq!(said, Vec::<String>::new());
        let prints = std::fs::read_to_string(&file).expect("what the job says");
        assert_eq!(prints, "0 prints succeeded, memory is fine\n");
        assert_eq!(block_event_count(&lab.trace()), 600_000);
        lab.clear();
    }
}

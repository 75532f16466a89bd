//! Which rank a process is, as its communicators say where nobody else does.

use msmemscope_event::Place;

use crate::support::Lab;

fn places(lab: &Lab) -> Vec<(Option<u32>, Option<u32>)> {
    let place = |place: Place| (place.rank, place.world_size);
    let mut places: Vec<_> = lab.traces().iter().map(|trace| place(trace.definitions().place())).collect();
    places.sort_unstable();
    places
}

#[test]
fn the_largest_communicator_numbers_processes_that_nobody_else_does() {
    let lab = Lab::new();
    let libraries = ["ascendcl", "ascend_hal", "hccl"];
    let program = lab.compile("communicators.c", include_str!("../programs/communicators.c"), &libraries);
    assert_eq!(lab.same_with_and_without(&program, &[]), Vec::<String>::new());
    assert_eq!(places(&lab), [0, 1, 2].map(|rank| (Some(rank), Some(3))));
    lab.clear();
    lab.same_with_and_without_in(&program, &[], |command| {
        command.env("RANK", "7").env("WORLD_SIZE", "9");
    });
    assert_eq!(places(&lab), [(Some(7), Some(9)); 3], "the launcher knows better");
    lab.clear();
    lab.same_with_and_without_in(&program, &[], |command| {
        command.env("LOCAL_RANK", "5");
    });
    assert_eq!(places(&lab), [0, 1, 2].map(|rank| (Some(rank), Some(3))), "the place on one machine is no rank");
}

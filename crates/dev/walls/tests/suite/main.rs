//! The walls of the house: who may know whom. ARCHITECTURE.md draws them; this holds them.

use std::collections::BTreeSet;

use walls::House;

/// What may be linked into a job, besides our own crates: each further one is a guest in somebody else's process.
/// (`stable_deref_trait` has no code; a feature of gimli that offline crates ask for brings it.)
const GUESTS_OF_THE_JOB: [&str; 4] = ["gimli", "libc", "stable_deref_trait", "xxhash-rust"];

/// Which parts the product code of a part may depend on.
fn may_know(part: &str) -> &'static [&'static str] {
    match part {
        "crates/job" => &["crates/job"],
        "crates/offline" => &["crates/job", "crates/offline"],
        "crates/front" => &["crates/job", "crates/offline", "crates/front"],
        "crates/dev" => &["crates/job"],
        "standin" => &["standin"],
        _ => &[],
    }
}

fn house() -> House {
    House::read().unwrap()
}

#[test]
fn every_crate_lives_in_a_known_part() {
    let known = ["crates/job", "crates/offline", "crates/front", "crates/dev", "standin"];
    for (name, room) in house().rooms {
        assert!(known.contains(&room.part.as_str()), "{name} lives in {}", room.part);
    }
}

#[test]
fn product_code_knows_only_the_parts_it_may() {
    let house = house();
    for (name, room) in &house.rooms {
        for other in room.needs.iter().filter_map(|need| house.rooms.get_key_value(need)) {
            let (other, other_room) = other;
            assert!(
                may_know(&room.part).contains(&other_room.part.as_str()),
                "{name} ({}) must not depend on {other} ({})",
                room.part,
                other_room.part
            );
        }
    }
}

/// A cdylib re-exports the hooks of what it links: a second copy of `halMemAlloc` would be a second state.
#[test]
fn nobody_links_the_recorder_or_a_hook_library() {
    let libraries = ["recorder", "hook-hal", "hook-mstx", "hook-atb-abi-0", "hook-atb-abi-1"];
    let libraries: BTreeSet<String> = libraries.iter().map(|name| format!("msmemscope-{name}")).collect();
    let house = house();
    assert!(libraries.iter().all(|name| house.rooms.contains_key(name)));
    for (name, room) in &house.rooms {
        let linked: Vec<_> = room.needs.intersection(&libraries).collect();
        assert!(linked.is_empty(), "{name} links {linked:?}");
    }
}

#[test]
fn build_scripts_of_the_product_do_not_know_the_stand_in() {
    let house = house();
    for (name, room) in house.rooms.iter().filter(|(_, room)| room.part != "standin") {
        let known =
            room.build_needs.iter().filter(|need| house.rooms.get(*need).is_some_and(|of| of.part == "standin"));
        assert_eq!(known.count(), 0, "the build script of {name} knows the stand-in");
    }
}

#[test]
fn the_recorder_brings_few_guests_into_the_job() {
    let found = house().foreign_closure("msmemscope-recorder");
    assert_eq!(found, GUESTS_OF_THE_JOB.map(str::to_owned).into());
}

#[test]
fn the_thin_libraries_bring_no_guests() {
    for name in ["hook-hal", "hook-mstx", "hook-atb-abi-0", "hook-atb-abi-1"] {
        assert_eq!(house().foreign_closure(&format!("msmemscope-{name}")), BTreeSet::new(), "{name}");
    }
}

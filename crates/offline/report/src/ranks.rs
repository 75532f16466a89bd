//! What several ranks of a job have in common is said once.

use msmemscope_analysis::Answers;
use msmemscope_analysis::leaks::{LeakGroup, LeakReport};
use msmemscope_event::Place;

use crate::units::number_ranges;

/// What makes leaks of different processes the same ones: pools and lines. Nothing if there are none, or if more than
/// leaks is wrong.
pub fn leak_keys(answers: &Answers) -> Vec<String> {
    let has_other_alarm = answers.out_of_memory.as_ref().is_some_and(|report| report.is_alarming())
        || answers.watch.as_ref().is_some_and(|watch| watch.corruptions().next().is_some());
    let suspects = answers.leaks.iter().filter(|_| !has_other_alarm).flat_map(LeakReport::suspects);
    let key = |group: &LeakGroup| match group.site.is_known() {
        true => format!("{} {}", group.pool.event_type(), group.site.line),
        // Without any line only the size tells leaks apart.
        false => format!("{} {}", group.pool.event_type(), group.bytes_per_step),
    };
    let mut keys: Vec<String> = suspects.map(key).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// For each process the one that speaks for it: itself, or the first rank with the same leaks.
pub fn speakers(processes: &[(Place, &[String])]) -> Vec<usize> {
    let speaker = |index: usize| {
        let (place, keys) = processes[index];
        let is_same = |(other, other_keys): &(Place, &[String])| other.rank.is_some() && *other_keys == keys;
        let is_mergeable = place.rank.is_some() && !keys.is_empty();
        processes.iter().position(is_same).filter(|_| is_mergeable).unwrap_or(index)
    };
    (0..processes.len()).map(speaker).collect()
}

/// That what follows holds for several ranks; nothing if it is about one.
pub fn shared_by(processes: &[(Place, &[String])], speakers: &[usize], speaker: usize) -> Option<String> {
    let members: Vec<Place> =
        (0..processes.len()).filter(|&index| speakers[index] == speaker).map(|index| processes[index].0).collect();
    let ranks: Vec<u32> = members.iter().filter_map(|place| place.rank).collect();
    let world_size = members.first().and_then(|place| place.world_size);
    let which = match ranks.len() {
        0 | 1 => return None,
        2 if world_size == Some(2) => "both ranks".to_owned(),
        count if world_size.is_some_and(|size| size as usize == count) => format!("all {count} ranks"),
        _ => format!("ranks {}", number_ranges(&ranks)),
    };
    Some(format!("The same leaks on {which}; in detail of rank {}:", members[0].rank.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_speaks_for_those_with_the_same_leaks() {
        let keys = |text: &str| vec![format!("PTA {text}")];
        let (same, other, none) = (keys("train.py:7"), keys("train.py:9"), Vec::new());
        let rank = |rank| Place { rank: Some(rank), local_rank: None, world_size: Some(4) };
        let processes = [
            (rank(0), &same[..]),
            (rank(1), &other[..]),
            (rank(2), &same[..]),
            (rank(3), &none[..]),
            (Place::default(), &same[..]),
        ];
        let told = speakers(&processes);
        assert_eq!(told, [0, 1, 0, 3, 4], "what has no rank, or no leak, speaks for itself");
        let said = shared_by(&processes, &told, 0);
        assert_eq!(said.as_deref(), Some("The same leaks on ranks 0, 2; in detail of rank 0:"));
        assert_eq!(shared_by(&processes, &told, 1), None);
        let all: Vec<(Place, &[String])> = (0..4).map(|number| (rank(number), &same[..])).collect();
        let said = shared_by(&all, &speakers(&all), 0);
        assert_eq!(said.as_deref(), Some("The same leaks on all 4 ranks; in detail of rank 0:"));
        let pair = [0, 1].map(|number| (Place { world_size: Some(2), ..rank(number) }, &same[..]));
        let said = shared_by(&pair, &speakers(&pair), 0);
        assert_eq!(said.as_deref(), Some("The same leaks on both ranks; in detail of rank 0:"));
    }
}

//! "Did you mean": the known word nearest to a mistyped one.

/// Longer words are no typos of ours, and the comparison stays cheap.
const LONGEST_COMPARED: usize = 40;

/// The candidate nearest to `word`, if it is near enough to be a typo of it.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST_COMPARED + 1).collect();
    if word.is_empty() || word.len() > LONGEST_COMPARED {
        return None;
    }
    let lower: Vec<char> = word.iter().flat_map(|c| c.to_lowercase()).collect();
    let tolerated = (lower.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| {
            let letters: Vec<char> = candidate.chars().flat_map(char::to_lowercase).collect();
            (distance(&lower, &letters), candidate)
        })
        .filter(|(distance, candidate)| {
            // A distance as long as the candidate would turn any short word into any other.
            *distance <= tolerated && *distance < candidate.chars().count()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The command that a word was probably meant to be.
pub fn nearest_command(word: &str) -> Option<&'static str> {
    nearest(word, crate::COMMANDS.iter().map(|command| command.name))
}

/// Edits (insert, delete, replace, swap of neighbours) that turn `left` into `right`.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before_previous: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let replaced = usize::from(left[row - 1] != right[column - 1]);
            let mut best = (previous[column] + 1).min(current[column - 1] + 1).min(previous[column - 1] + replaced);
            let swapped =
                row > 1 && column > 1 && left[row - 1] == right[column - 2] && left[row - 2] == right[column - 1];
            if swapped {
                best = best.min(before_previous[column - 2] + 1);
            }
            current.push(best);
        }
        before_previous = std::mem::replace(&mut previous, current);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typos_and_only_typos() {
        let words = ["alloc", "free", "launch", "access", "traceback", "none"];
        for (typed, meant) in [
            ("fre", Some("free")),
            ("fere", Some("free")),
            ("Alloc", Some("alloc")),
            ("lanch", Some("launch")),
            ("acess", Some("access")),
            ("trace-back", Some("traceback")),
            ("zzz", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, words), meant, "{typed}");
        }
        assert_eq!(nearest(&"a".repeat(5000), words), None);
    }

    #[test]
    fn distance_counts_edits() {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        for (left, right, edits) in
            [("", "", 0), ("ab", "", 2), ("ab", "ba", 1), ("kitten", "sitting", 3), ("a", "a", 0)]
        {
            assert_eq!(distance(&letters(left), &letters(right)), edits, "{left} {right}");
            assert_eq!(distance(&letters(right), &letters(left)), edits, "{right} {left}");
        }
    }
}

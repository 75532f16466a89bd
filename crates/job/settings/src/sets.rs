//! Small typed bit sets for the things a user may name in a list: events, analyses, operator levels.
//!
//! The bit values are those of `config.json`, so they can be written there unchanged.

use std::fmt;

/// Defines a set of named members over one byte.
macro_rules! named_set {
    ($(#[$meta:meta])* $set:ident { $($(#[$member_meta:meta])* $member:ident = $bit:literal, $name:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $set(u8);

        impl $set {
            $($(#[$member_meta])* pub const $member: $set = $set($bit);)+

            /// Every member with the word users write for it.
            pub const MEMBERS: &'static [($set, &'static str)] = &[$(($set::$member, $name)),+];

            /// The empty set.
            pub const NONE: $set = $set(0);

            /// The bits as written to `config.json` and handed to the recorder.
            pub const fn bits(self) -> u8 {
                self.0
            }

            /// The set for `bits`; bits without a meaning are dropped.
            pub const fn from_bits(bits: u8) -> $set {
                $set(bits & (0 $(| $bit)+))
            }

            /// The member named `word`.
            pub fn from_word(word: &str) -> Option<$set> {
                Self::MEMBERS.iter().find(|(_, name)| *name == word).map(|(member, _)| *member)
            }

            /// The words of all members, in table order.
            pub fn words() -> impl Iterator<Item = &'static str> {
                Self::MEMBERS.iter().map(|(_, name)| *name)
            }

            /// Whether every member of `other` is in this set.
            pub const fn contains(self, other: $set) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether this set and `other` share a member.
            pub const fn intersects(self, other: $set) -> bool {
                self.0 & other.0 != 0
            }

            /// Members of either set.
            pub const fn union(self, other: $set) -> $set {
                $set(self.0 | other.0)
            }

            /// Members of this set that are not in `other`.
            pub const fn without(self, other: $set) -> $set {
                $set(self.0 & !other.0)
            }

            /// Whether the set has no member.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Display for $set {
            /// The members as users write them, separated by commas; `none` for the empty set.
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.is_empty() {
                    return formatter.write_str("none");
                }
                let mut separator = "";
                for (_, name) in Self::MEMBERS.iter().filter(|(member, _)| self.contains(*member)) {
                    write!(formatter, "{separator}{name}")?;
                    separator = ",";
                }
                Ok(())
            }
        }

        impl fmt::Debug for $set {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}({self})", stringify!($set))
            }
        }
    };
}

named_set! {
    /// Kinds of events a user can ask for with `--events`.
    EventSet {
        /// Memory allocations.
        ALLOC = 1, "alloc";
        /// Memory deallocations.
        FREE = 2, "free";
        /// Dispatches of operators and kernels.
        LAUNCH = 4, "launch";
        /// Accesses of operators to memory.
        ACCESS = 8, "access";
        /// Python function trace.
        TRACEBACK = 16, "traceback";
    }
}

named_set! {
    /// Analyses a user can ask for with `--analysis`.
    AnalysisSet {
        /// Leaks and fluctuation between steps.
        LEAKS = 1, "leaks";
        /// Who owns which memory.
        DECOMPOSE = 2, "decompose";
        /// Memory allocated too early, freed too late or idle.
        INEFFICIENT = 4, "inefficient";
        /// What filled the memory when an allocation failed.
        OOM = 8, "oom";
    }
}

named_set! {
    /// Granularity of launches a user can ask for with `--level`.
    LevelSet {
        /// Operators.
        OP = 1, "op";
        /// Kernels.
        KERNEL = 2, "kernel";
    }
}

impl EventSet {
    /// What is collected unless the user says otherwise.
    pub const DEFAULT: EventSet = EventSet(1 | 2 | 4);
    /// Allocations and frees, which are never collected one without the other.
    pub const MEMORY: EventSet = EventSet(1 | 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bits_agree() {
        for (member, word) in EventSet::MEMBERS {
            assert_eq!(EventSet::from_word(word), Some(*member));
            assert_eq!(EventSet::from_bits(member.bits()), *member);
        }
        assert_eq!(EventSet::from_word("fre"), None);
        assert_eq!(EventSet::from_bits(0xff).bits(), 31);
    }

    #[test]
    fn display_lists_members_in_table_order() {
        assert_eq!(EventSet::DEFAULT.to_string(), "alloc,free,launch");
        assert_eq!(AnalysisSet::NONE.to_string(), "none");
        assert_eq!(LevelSet::OP.union(LevelSet::KERNEL).to_string(), "op,kernel");
    }
}

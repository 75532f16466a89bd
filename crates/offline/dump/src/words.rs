//! What stands in the `Event` and `Event Type` columns, for both directions: how each thing is spelled, and the spellings
//! of other ages that mean the same.

use msmemscope_event::{AccessKind, AllocationInterface, Framework, KernelPhase, PageType, Pool};

/// Makes an enum of words: the word that is written, and further ones that are read.
macro_rules! words {
    (
        $(#[$documentation:meta])*
        $kind:ident { $($(#[$about:meta])* $variant:ident = $word:literal $(| $other:literal)*,)+ }
    ) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[$about])* $variant,)+ }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [$kind] = &[$($kind::$variant),+];

            /// How it is written.
            #[inline]
            pub const fn word(self) -> &'static str {
                match self {
                    $($kind::$variant => $word,)+
                }
            }

            /// What a word means, if it is known.
            #[inline]
            pub fn from_word(word: &[u8]) -> Option<Self> {
                $(
                    if word == $word.as_bytes() $(|| word == $other.as_bytes())* {
                        return Some($kind::$variant);
                    }
                )+
                None
            }
        }
    };
}

/// Makes the spelling of something that the vocabulary of facts has. What is behind
/// `else` is written for everything else, and read as nothing.
macro_rules! spellings {
    (
        $(#[$documentation:meta])*
        $write:ident, $read:ident: $kind:ty { $($value:pat => $word:literal means $meant:expr,)+ } else $rest:literal
    ) => {
        $(#[$documentation])*
        #[inline]
        pub fn $write(value: $kind) -> &'static str {
            #[allow(unreachable_patterns, reason = "some tables know every value")]
            match value {
                $($value => $word,)+
                _ => $rest,
            }
        }

        /// The same read back; nothing for a word that nobody knows.
        #[inline]
        pub fn $read(word: &[u8]) -> Option<$kind> {
            $(
                if word == $word.as_bytes() {
                    return Some($meant);
                }
            )+
            None
        }
    };
}

words! {
    /// The `Event` column.
    Event {
        /// A block came into being.
        Malloc = "MALLOC",
        /// A block ended.
        Free = "FREE",
        /// An operator touched memory.
        Access = "ACCESS",
        /// An operator began or ended.
        OperatorLaunch = "OP_LAUNCH",
        /// A kernel was launched, began or ended.
        KernelLaunch = "KERNEL_LAUNCH",
        /// A mark or range of the user.
        Message = "MSTX",
        /// Something about the recording or the runtime.
        System = "SYSTEM",
        /// Counters of a framework.
        Snapshot = "SNAPSHOT",
        /// Memory ran out.
        OutOfMemory = "OOM_DETAIL",
        /// Written by other tools when they close a block.
        CleanUp = "CLEAN_UP",
    }
}

words! {
    /// The types of [`Event::Message`].
    MessageType {
        /// A point.
        Mark = "Mark",
        /// A range starts.
        RangeStart = "Range_start",
        /// A range ends.
        RangeEnd = "Range_end",
    }
}

words! {
    /// The types of [`Event::System`].
    SystemType {
        /// The runtime was initialised.
        AclInit = "ACL_INIT" | "acl init",
        /// The runtime was finalised.
        AclFinalize = "ACL_FINI" | "acl finalize" | "acl fini",
        /// Recording starts.
        StartTrace = "START_TRACE",
        /// Recording stops.
        StopTrace = "STOP_TRACE",
        /// A step ended.
        Step = "STEP",
        /// The driver refused for another reason than lack of room.
        AllocationFailed = "ALLOCATION_FAILED",
        /// The driver would not free.
        FreeFailed = "FREE_FAILED",
    }
}

words! {
    /// The types of [`Event::OutOfMemory`].
    OutOfMemoryType {
        /// The allocation that failed.
        Trigger = "OOM_TRIGGER",
        /// A block allocated shortly before.
        RecentAllocation = "OOM_RECENT_ALLOC",
        /// One of the largest blocks.
        LargestAllocation = "OOM_TOP_ALLOC",
    }
}

/// The type of [`Event::Snapshot`].
pub const SNAPSHOT_TYPE: &str = "SNAPSHOT";

spellings! {
    /// The types of [`Event::Access`].
    access_word, access_from_word: AccessKind {
        AccessKind::Read => "READ" means AccessKind::Read,
        AccessKind::Write => "WRITE" means AccessKind::Write,
    } else "UNKNOWN"
}

spellings! {
    /// The types of [`Event::OperatorLaunch`]: whose operator, and whether it begins.
    operator_word, operator_from_word: (Framework, bool) {
        (Framework::Aten, true) => "ATEN_START" means (Framework::Aten, true),
        (Framework::Aten, false) => "ATEN_END" means (Framework::Aten, false),
        (Framework::Atb, true) => "ATB_START" means (Framework::Atb, true),
        (Framework::Atb, false) => "ATB_END" means (Framework::Atb, false),
        (Framework::Other, true) => "OP_START" means (Framework::Other, true),
        (Framework::Other, false) => "OP_END" means (Framework::Other, false),
    } else "N/A"
}

spellings! {
    /// The types of [`Event::KernelLaunch`].
    kernel_word, kernel_from_word: KernelPhase {
        KernelPhase::Launch | KernelPhase::Other => "KERNEL_LAUNCH" means KernelPhase::Launch,
        KernelPhase::ExecuteStart => "KERNEL_EXECUTE_START" means KernelPhase::ExecuteStart,
        KernelPhase::ExecuteEnd => "KERNEL_EXECUTE_END" means KernelPhase::ExecuteEnd,
        KernelPhase::Start => "KERNEL_START" means KernelPhase::Start,
        KernelPhase::End => "KERNEL_END" means KernelPhase::End,
    } else "N/A"
}

spellings! {
    /// Values of [`crate::keys::FRAMEWORK`].
    framework_word, framework_from_word: Framework {
        Framework::Aten => "PTA" means Framework::Aten,
        Framework::Atb => "ATB" means Framework::Atb,
    } else "N/A"
}

spellings! {
    /// Values of [`crate::keys::FUNCTION`] where an allocation failed.
    allocating_function, allocating_interface: AllocationInterface {
        AllocationInterface::Alloc => "halMemAlloc" means AllocationInterface::Alloc,
        AllocationInterface::Create => "halMemCreate" means AllocationInterface::Create,
        AllocationInterface::HostRegister => "aclrtHostRegister" means AllocationInterface::HostRegister,
        AllocationInterface::Framework => "MindSpore" means AllocationInterface::Framework,
    } else "N/A"
}

spellings! {
    /// Values of [`crate::keys::FUNCTION`] where a free failed.
    freeing_function, freeing_interface: AllocationInterface {
        AllocationInterface::Alloc => "halMemFree" means AllocationInterface::Alloc,
        AllocationInterface::Create => "halMemRelease" means AllocationInterface::Create,
        AllocationInterface::HostRegister => "aclrtHostUnregister" means AllocationInterface::HostRegister,
    } else "N/A"
}

/// The pool of a MALLOC or FREE row. Closing rows of blocks that were only ever touched name none.
#[inline]
pub fn pool_from_word(word: &[u8]) -> Option<Pool> {
    Pool::ALL.iter().copied().find(|pool| pool.event_type().as_bytes() == word)
}

/// The page type that a value of [`crate::keys::PAGE_TYPE`] names.
pub fn page_type_from_word(word: &[u8]) -> Option<PageType> {
    [PageType::Normal, PageType::Huge, PageType::Giant].into_iter().find(|page| page.name().as_bytes() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for event in Event::ALL {
            assert_eq!(Event::from_word(event.word().as_bytes()), Some(*event));
        }
        for system in SystemType::ALL {
            assert_eq!(SystemType::from_word(system.word().as_bytes()), Some(*system));
        }
        assert_eq!(SystemType::from_word(b"acl fini"), Some(SystemType::AclFinalize));
        for phase in [KernelPhase::Launch, KernelPhase::ExecuteStart, KernelPhase::ExecuteEnd, KernelPhase::Start] {
            assert_eq!(kernel_from_word(kernel_word(phase).as_bytes()), Some(phase));
        }
        for launch in [(Framework::Aten, true), (Framework::Atb, false), (Framework::Other, true)] {
            assert_eq!(operator_from_word(operator_word(launch).as_bytes()), Some(launch));
        }
        for pool in Pool::ALL {
            assert_eq!(pool_from_word(pool.event_type().as_bytes()), Some(*pool));
        }
        assert_eq!((Event::from_word(b"NOISE"), pool_from_word(b"XYZ"), kernel_from_word(b"")), (None, None, None));
        assert_eq!(access_word(AccessKind::Unknown), "UNKNOWN");
    }
}

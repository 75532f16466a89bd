//! The keys of the `Attr` cell, one name for each, for both directions.

macro_rules! keys {
    ($($(#[$documentation:meta])* $constant:ident = $key:literal;)+) => {
        $($(#[$documentation])* pub const $constant: &str = $key;)+

        /// The same as bytes, for those who read.
        pub mod read {
            $($(#[$documentation])* pub const $constant: &[u8] = $key.as_bytes();)+
        }

        /// All keys.
        pub const ALL: &[&str] = &[$($key),+];
    };
}

keys! {
    /// Number of the allocation in its process.
    ALLOCATION_ID = "allocation_id";
    /// First byte, or the byte that was touched.
    ADDRESS = "addr";
    /// Bytes.
    SIZE = "size";
    /// Whether host memory is pinned.
    PINNED = "pinned";
    /// It was alive before recording, or nobody has seen its end.
    SHADOW = "shadow";
    /// The end of a shadow block did happen.
    FREED = "freed";
    /// Stream of the card that a block was allocated for.
    BLOCK_STREAM = "stream";
    /// Bytes in use in the pool.
    USED = "used";
    /// Bytes that the pool holds, or that there are at all.
    TOTAL = "total";
    /// Bytes that the process has on the card.
    PROCESS_USED = "process_used";
    /// Bytes in use on the card.
    DEVICE_USED = "device_used";
    /// Who owns the block.
    OWNER = "owner";
    /// In which ways its use is inefficient.
    INEFFICIENT_TYPE = "inefficient_type";
    /// Size class of the pages.
    PAGE_TYPE = "page_type";
    /// Which interface of the driver allocated it.
    ALLOCATION_TYPE = "alloc_type";
    /// Number of the driver's module; only in files of other ages.
    MODULE_ID = "MID";
    /// Whose operator touched memory.
    FRAMEWORK = "type";
    /// Element type.
    ELEMENT_TYPE = "dtype";
    /// Memory format.
    FORMAT = "format";
    /// Shape.
    SHAPE = "shape";
    /// Stream of a kernel.
    STREAM_ID = "streamId";
    /// Task of a kernel.
    TASK_ID = "taskId";
    /// Where in its graph an operator or kernel is.
    PATH = "path";
    /// Scratch memory that an operator was given.
    WORKSPACE_ADDRESS = "workspace_ptr";
    /// Bytes of that.
    WORKSPACE_SIZE = "workspace_size";
    /// Domain of a message.
    DOMAIN = "domain";
    /// What the runtime returned.
    RESULT = "result";
    /// Bytes that are free.
    FREE = "free";
    /// Bytes the framework has reserved.
    RESERVED = "reserved";
    /// The most it ever had.
    MAXIMUM_RESERVED = "max_reserved";
    /// Bytes of the reserved ones that are in use.
    ALLOCATED = "allocated";
    /// The most that ever were.
    MAXIMUM_ALLOCATED = "max_allocated";
    /// Share of the card that is in use.
    DEVICE_RATE = "device_rate";
    /// Share of the reserved bytes that is in use.
    RESERVED_RATE = "reserved_rate";
    /// Function of the driver.
    FUNCTION = "func";
    /// Bytes asked for.
    REQUESTED_SIZE = "req_size";
    /// Flag passed to the driver.
    FLAG = "flag";
    /// What the driver returned.
    ERROR = "error";
    /// Pool of a listed block.
    POOL = "pool";
    /// First byte of a listed block.
    LISTED_POINTER = "ptr";
    /// When a listed block was allocated.
    LISTED_TIMESTAMP = "timestamp";
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_key_has_two_names() {
        let mut keys = super::ALL.to_vec();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), super::ALL.len());
    }
}

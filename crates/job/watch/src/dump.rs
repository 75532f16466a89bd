//! Files of dumped contents.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Longest file name that file systems take, in bytes.
const LONGEST_FILE_NAME: usize = 255;
/// Directory of dumps beside those of the device's other results.
pub const DUMP_DIRECTORY: &str = "watch_dump";

/// The name as a file name: names of operators may be paths, and may be too long.
pub fn file_name(dump_name: &str) -> String {
    let name: String =
        dump_name.chars().map(|letter| if letter == '/' || letter == '\0' { '.' } else { letter }).collect();
    if name.len() <= LONGEST_FILE_NAME {
        return name;
    }
    // The front says where, the end says which: both stay.
    let half = (LONGEST_FILE_NAME - 2) / 2;
    let front = &name[..name.floor_char_boundary(half)];
    let back = &name[name.ceil_char_boundary(name.len() - half)..];
    format!("{front}..{back}")
}

/// A new file for a dump, readable by its owner only.
pub fn create(directory: &Path, file_name: &str) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(file_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_event::{Device, dump_name};

    #[test]
    fn names_are_as_documented() {
        let name = dump_name(Device::Npu(2), 4711, ("token0/layer0/op1", 3), ("token0/layer0/op0", 1), false);
        assert_eq!(name, "2_4711_token0/layer0/op1_3-token0/layer0/op0_1_before.bin");
        assert_eq!(file_name(&name), "2_4711_token0.layer0.op1_3-token0.layer0.op0_1_before.bin");
    }

    #[test]
    fn long_names_fit_and_keep_both_ends() {
        let name = format!("0_1_{}_1-test_0_after.bin", "ü".repeat(300));
        let file = file_name(&name);
        assert!(file.len() <= LONGEST_FILE_NAME);
        assert!(file.starts_with("0_1_ü") && file.ends_with("ü_1-test_0_after.bin"), "{file}");
    }
}

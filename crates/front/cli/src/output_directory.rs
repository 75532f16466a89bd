//! Checks the output directory before the job starts: an error found afterwards is found too late.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::libraries::distrust_reason;
use msmemscope_report::shell::quoted_path;

/// Bytes that names below the output directory may need: process directory, device, file.
const ROOM_FOR_NAMES_BYTES: usize = 160;

/// Makes sure that recordings can be created below `output`, and leaves nothing behind. Gives a
/// remark if they can, but should not be trusted there.
pub fn check(output: &Path) -> Result<Option<String>, String> {
    if output.as_os_str().len() + ROOM_FOR_NAMES_BYTES >= libc::PATH_MAX as usize {
        let length = output.as_os_str().len();
        return Err(format!("--output: the path is {length} bytes long, which leaves no room for file names"));
    }
    if output.as_os_str().as_bytes().contains(&0) {
        return Err("--output: the path contains a NUL byte".to_owned());
    }
    let existing = output.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    match existing.metadata() {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(format!("--output: '{}' is not a directory", existing.display()));
        }
        Ok(_) => {}
        Err(error) => return Err(format!("--output: '{}' cannot be used: {error}", existing.display())),
    }
    if let Err(error) = try_to_create(existing) {
        return Err(format!("--output: nothing can be created in '{}': {error}", existing.display()));
    }
    // SAFETY: plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    let distrust = if existing == output && !is_root { distrust_reason(output).ok().flatten() } else { None };
    Ok(distrust.map(|reason| format!("the output directory {} {reason}", quoted_path(output))))
}

/// Creates a directory and removes it again: permissions alone do not tell of read-only and special
/// file systems.
fn try_to_create(place: &Path) -> io::Result<()> {
    // A name that nobody can have taken beforehand.
    let mut probe = place.join(".msmemscope-probe-XXXXXX").into_os_string().into_vec();
    probe.push(0);
    // SAFETY: the template ends with a NUL byte and is ours to be changed.
    if unsafe { libc::mkdtemp(probe.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    probe.pop();
    std::fs::remove_dir(OsString::from_vec(probe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_named_and_nothing_is_created() {
        let home = tempfile::tempdir().expect("temporary directory");
        let fresh = home.path().join("a/b/c");
        assert_eq!(check(&fresh), Ok(None));
        assert!(!home.path().join("a").exists());
        let file = home.path().join("file");
        std::fs::write(&file, b"").expect("file");
        assert!(check(&file).is_err_and(|message| message.contains("is not a directory")));
        assert!(check(&file.join("below")).is_err_and(|message| message.contains("is not a directory")));
        let long = home.path().join("x".repeat(4090));
        assert!(check(&long).is_err_and(|message| message.contains("no room for file names")));
        assert!(check(Path::new("/proc/1/nothing")).is_err());
    }
}

//! Checks the output directory before the job starts: an error found afterwards is found too late.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::libraries::distrust_reason;

/// Bytes that names below the output directory may need: process directory, device, file.
const ROOM_FOR_NAMES_BYTES: usize = 160;

/// Makes sure that recordings can be created below `output`, without creating anything. Gives a
/// remark if they can, but should not be trusted there.
pub fn check(output: &Path) -> Result<Option<String>, String> {
    let shown = output.display();
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
    if let Err(error) = writable(existing) {
        return Err(format!("--output: nothing can be created in '{}': {error}", existing.display()));
    }
    let distrust = if existing == output { distrust_reason(output).ok().flatten() } else { None };
    Ok(distrust.map(|reason| format!("the output directory '{shown}' {reason}")))
}

fn writable(directory: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: plain system call on a valid C string.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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

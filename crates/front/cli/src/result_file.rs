//! Files that people ask for by name: whole or not at all, never over somebody's file unless it was named, or the
//! standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use msmemscope_report::shell::quoted_path;

/// Stands for the standard output.
const STANDARD_OUTPUT: &str = "-";

/// Writes a result to the file that was named, else to the usual one. Returns the file and its size; nothing if the
/// result went to the standard output.
pub fn write_result(
    named: Option<&Path>,
    usual_name: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<Option<(PathBuf, u64)>, String> {
    if named == Some(Path::new(STANDARD_OUTPUT)) {
        let mut out = BufWriter::new(io::stdout().lock());
        return match write(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the result: {error}")),
            _ => Ok(None),
        };
    }
    check_name(named, usual_name)?;
    let path = named.map_or_else(|| PathBuf::from(usual_name), Path::to_owned);
    let size_bytes =
        write_file(&path, write).map_err(|error| format!("cannot write {}: {error}", quoted_path(&path)))?;
    Ok(Some((path, size_bytes)))
}

/// An error if the result has no place, to be asked before long work.
pub fn check_name(named: Option<&Path>, usual_name: &str) -> Result<(), String> {
    let path = Path::new(usual_name);
    match named.is_none() && path.symlink_metadata().is_ok() {
        true => Err(format!("{} exists already; name another file with --output", quoted_path(path))),
        false => Ok(()),
    }
}

/// Writes a file that is there whole or not at all; returns its size.
fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".partial-{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let file = File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
    let mut out = BufWriter::new(file);
    let result = write(&mut out).and_then(|()| out.into_inner().map_err(io::Error::from)).and_then(|file| {
        let size_bytes = file.metadata()?.len();
        std::fs::rename(&partial, path)?;
        Ok(size_bytes)
    });
    if result.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    result
}

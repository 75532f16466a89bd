//! Files that people ask for by name: whole or not at all, never over somebody's file unless it was named, or the
//! standard output. Pipes, devices and links that are named stay what they are.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use msmemscope_report::shell::quoted_path;

/// Names of the standard output.
const STANDARD_OUTPUT: [&str; 2] = ["-", "/dev/stdout"];
/// Links that are followed one after the other, as many as the system follows.
const MOST_LINKS: usize = 40;

/// Writes a result to the file that was named, else to the usual one. Returns the file and its size; nothing if the
/// result went to the standard output.
pub fn write_result(
    named: Option<&Path>,
    usual_name: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<Option<(PathBuf, u64)>, String> {
    if named.is_some_and(|named| STANDARD_OUTPUT.iter().any(|name| named == Path::new(name))) {
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

/// Writes a file that is there whole or not at all, wherever links lead; returns its size. What is no regular file, such
/// as a pipe or a device, stays what it is and is written into.
fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if !there.is_file() => write_into(path, write),
        Ok(_) => replace_file(&path.canonicalize()?, write),
        Err(_) => replace_file(&target_of_links(path)?, write),
    }
}

/// Writes into what is there; returns how much.
fn write_into(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
    let mut out = BufWriter::new(Counted { file: File::options().write(true).open(path)?, size_bytes: 0 });
    write(&mut out)?;
    out.flush()?;
    Ok(out.get_ref().size_bytes)
}

/// Where a link leads whose file is yet to be made; the path itself if it is none.
fn target_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MOST_LINKS {
        match target.read_link() {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Writes a file beside its place and moves it there when it is whole; returns its size.
fn replace_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
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

/// A file that knows how much was written into it.
struct Counted {
    file: File,
    size_bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.size_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::process::Command;

    fn written(path: &Path) -> io::Result<u64> {
        write_file(path, |out| out.write_all(b"result"))
    }

    #[test]
    fn a_pipe_stays_a_pipe_and_gets_the_result() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).expect("the result")
        });
        assert_eq!(written(&pipe).expect("written"), 6);
        assert_eq!(reader.join().expect("a reader"), b"result");
        assert!(fs::symlink_metadata(&pipe).expect("there").file_type().is_fifo());
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1, "nothing is left beside it");
    }

    #[test]
    fn links_stay_and_what_they_lead_to_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let elsewhere = directory.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a directory");
        fs::write(elsewhere.join("old"), b"old and longer").expect("a file");
        for (link, target) in [("to-old", "elsewhere/old"), ("to-new", "elsewhere/new"), ("twice", "to-old")] {
            let link = directory.path().join(link);
            symlink(target, &link).expect("a link");
            assert_eq!(written(&link).expect("written"), 6, "{target}");
            assert!(fs::symlink_metadata(&link).expect("there").is_symlink(), "{target}");
            assert_eq!(fs::read(&link).expect("the result"), b"result", "{target}");
        }
        let round = directory.path().join("round");
        symlink("round", &round).expect("a link");
        assert!(written(&round).is_err(), "a link to itself");
        assert!(written(&elsewhere).is_err(), "a directory");
        assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 2, "nothing is left beside them");
    }
}

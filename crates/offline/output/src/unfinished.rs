//! Files that are being written, so that whoever is ended in the middle of it can take them away.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::directory::Directory;

/// Something that must not stay the way it is.
#[derive(Debug)]
enum Unfinished {
    /// A file below a directory.
    File(Arc<Directory>, PathBuf),
    /// A temporary directory with everything in it.
    Tree(PathBuf),
}

impl Unfinished {
    fn remove(&self) {
        let _ = match self {
            Unfinished::File(directory, name) => directory.remove_file(name),
            Unfinished::Tree(path) => std::fs::remove_dir_all(path),
        };
    }
}

/// What there is, by number.
static UNFINISHED: Mutex<(u64, Vec<(u64, Unfinished)>)> = Mutex::new((0, Vec::new()));

fn lock() -> MutexGuard<'static, (u64, Vec<(u64, Unfinished)>)> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry of something that is being written; without it, it is finished or gone.
#[derive(Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    /// Makes a file and enters it, at once in the eyes of [`remove_all`].
    pub(crate) fn of_file<Made>(
        directory: &Arc<Directory>,
        name: &Path,
        make: impl FnOnce() -> std::io::Result<Made>,
    ) -> std::io::Result<(Self, Made)> {
        Self::of(make, |_| Unfinished::File(Arc::clone(directory), name.to_owned()))
    }

    /// Makes a temporary directory, likewise.
    pub(crate) fn of_tree(make: impl FnOnce() -> std::io::Result<PathBuf>) -> std::io::Result<(Self, PathBuf)> {
        Self::of(make, |path: &PathBuf| Unfinished::Tree(path.clone()))
    }

    fn of<Made>(
        make: impl FnOnce() -> std::io::Result<Made>,
        unfinished: impl FnOnce(&Made) -> Unfinished,
    ) -> std::io::Result<(Self, Made)> {
        let mut entries = lock();
        let made = make()?;
        entries.0 += 1;
        let number = entries.0;
        entries.1.push((number, unfinished(&made)));
        Ok((Self(number), made))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock().1.retain(|(number, _)| *number != self.0);
    }
}

/// Nothing can be begun while this lives.
pub struct NothingUnfinished {
    _entries: MutexGuard<'static, (u64, Vec<(u64, Unfinished)>)>,
}

/// Removes everything that is being written, before this process ends. Nothing is begun after it until the value goes.
pub fn remove_all() -> NothingUnfinished {
    let mut entries = lock();
    entries.1.drain(..).for_each(|(_, unfinished)| unfinished.remove());
    NothingUnfinished { _entries: entries }
}

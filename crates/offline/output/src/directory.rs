//! A directory held open, and names below it that are never reached through a symbolic link.
//!
//! Recordings may lie in directories that others can write to, or come from others altogether. Whoever owns a directory
//! can put a link in place of any name in it at any moment, so a name that was checked is not safe to use afterwards.
//! Here every step of a path is taken from the descriptor of the directory before it, and links are refused.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::files::DIRECTORY_MODE;
use crate::unfinished;

const DIRECTORY_FLAGS: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// Levels of directories that are removed at once; results of ours have three.
const DEEPEST_TREE: usize = 16;

/// A directory held open: whatever becomes of its name, this one is meant.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

/// What is known of a file without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Its size.
    pub size_bytes: u64,
    /// When its content changed, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Whether it is a regular file and not a link, a directory, a pipe or a device.
    pub is_file: bool,
}

impl Directory {
    /// Opens a directory. Its own name must not be that of a link; links before it are the caller's business.
    pub fn open(path: &Path) -> io::Result<Self> {
        let descriptor = open_at(libc::AT_FDCWD, path.as_os_str(), DIRECTORY_FLAGS, 0)?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// What it was called when it was opened, for messages and for those who cannot do without a path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it belongs to the user we run as, so that nobody else but root can change what is in it.
    pub fn is_own(&self) -> bool {
        // SAFETY: plain system call.
        let user = unsafe { libc::geteuid() };
        self.descriptor.try_clone().and_then(|copy| File::from(copy).metadata()).is_ok_and(|found| found.uid() == user)
    }

    /// Creates a new file; an existing one, or a link, is an error.
    pub fn create_new(&self, relative: &Path, mode: u32) -> io::Result<File> {
        let (holder, name) = self.holder(relative, Missing::Create)?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        open_at(holder.descriptor(), name, flags, mode).map(File::from)
    }

    /// Opens a regular file for reading; anything else is an error and is not waited for.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.open_existing(relative, libc::O_RDONLY)
    }

    /// Opens a regular file for adding to its end.
    pub fn open_for_appending(&self, relative: &Path) -> io::Result<File> {
        self.open_existing(relative, libc::O_WRONLY | libc::O_APPEND)
    }

    fn open_existing(&self, relative: &Path, access: libc::c_int) -> io::Result<File> {
        let (holder, name) = self.holder(relative, Missing::Fail)?;
        let flags = access | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let file = File::from(open_at(holder.descriptor(), name, flags, 0)?);
        let is_file = file.metadata()?.is_file();
        if is_file { Ok(file) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")) }
    }

    /// What is there under a name; a link is described itself.
    pub fn facts(&self, relative: &Path) -> io::Result<FileFacts> {
        let (holder, name) = self.holder(relative, Missing::Fail)?;
        let name = c_name(name)?;
        // SAFETY: plain old data, for which zero is a valid value.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a valid C string and a valid place for the answer.
        let result =
            unsafe { libc::fstatat(holder.descriptor(), name.as_ptr(), &mut found, libc::AT_SYMLINK_NOFOLLOW) };
        succeeded(result)?;
        Ok(FileFacts {
            size_bytes: u64::try_from(found.st_size).unwrap_or(0),
            modified_ns: found.st_mtime.saturating_mul(1_000_000_000).saturating_add(found.st_mtime_nsec),
            is_file: found.st_mode & libc::S_IFMT == libc::S_IFREG,
        })
    }

    /// Removes a name; what a link leads to stays.
    pub fn remove_file(&self, relative: &Path) -> io::Result<()> {
        let (holder, name) = self.holder(relative, Missing::Fail)?;
        let name = c_name(name)?;
        // SAFETY: a valid C string.
        succeeded(unsafe { libc::unlinkat(holder.descriptor(), name.as_ptr(), 0) })
    }

    /// The names in it, in no order.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        names_in(&self.descriptor)
    }

    /// Removes a name in this directory with everything below it; what links lead to stays.
    pub fn remove_tree(&self, name: &OsStr) -> io::Result<()> {
        match Path::new(name).components().collect::<Vec<_>>()[..] {
            [Component::Normal(_)] => remove_tree(&self.descriptor, name, DEEPEST_TREE),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name in the directory")),
        }
    }

    /// Gives a file another name below this directory, making directories on the way, and replaces what has that name.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_with(from, to, |from_holder, from, to_holder, to| {
            // SAFETY: both are valid C strings.
            succeeded(unsafe { libc::renameat(from_holder, from.as_ptr(), to_holder, to.as_ptr()) })
        })
    }

    /// Like [`Directory::rename`]; that the name is taken is an error.
    pub fn rename_without_replacing(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_with(from, to, rename_without_replacing)
    }

    fn rename_with(
        &self,
        from: &Path,
        to: &Path,
        rename: impl FnOnce(RawFd, &CStr, RawFd, &CStr) -> io::Result<()>,
    ) -> io::Result<()> {
        let (from_holder, from) = self.holder(from, Missing::Fail)?;
        let (to_holder, to) = self.holder(to, Missing::Create)?;
        rename(from_holder.descriptor(), &c_name(from)?, to_holder.descriptor(), &c_name(to)?)
    }

    /// The directory that holds the last name of a path below this one, and that name.
    fn holder<'p>(&self, relative: &'p Path, missing: Missing) -> io::Result<(Holder<'_>, &'p OsStr)> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "not a path below the directory");
        let mut names = Vec::new();
        for component in relative.components() {
            match component {
                Component::Normal(name) => names.push(name),
                _ => return Err(outside()),
            }
        }
        let name = names.pop().ok_or_else(outside)?;
        let mut holder = Holder::Itself(self);
        for step in names {
            let parent = holder.descriptor();
            let opened = match open_at(parent, step, DIRECTORY_FLAGS, 0) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Create => {
                    make_directory(parent, step)?;
                    open_at(parent, step, DIRECTORY_FLAGS, 0)
                }
                opened => opened,
            };
            holder = Holder::Below(opened?);
        }
        Ok((holder, name))
    }
}

/// What to do about directories that are not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Fail,
}

enum Holder<'a> {
    Itself(&'a Directory),
    Below(OwnedFd),
}

impl Holder<'_> {
    fn descriptor(&self) -> RawFd {
        match self {
            Holder::Itself(directory) => directory.descriptor.as_raw_fd(),
            Holder::Below(descriptor) => descriptor.as_raw_fd(),
        }
    }
}

fn names_in(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    // Whatever its name leads to by now, this is the directory that is open.
    let entries = std::fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

fn remove_tree(parent: &OwnedFd, name: &OsStr, levels: usize) -> io::Result<()> {
    let is_directory = match open_at(parent.as_raw_fd(), name, DIRECTORY_FLAGS, 0) {
        Ok(_) if levels == 0 => return Err(io::Error::other("directories are nested too deeply")),
        Ok(directory) => {
            names_in(&directory)?.iter().try_for_each(|below| remove_tree(&directory, below, levels - 1))?;
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        // A file, a link, a pipe: whatever it is, its name goes.
        Err(_) => false,
    };
    let name = c_name(name)?;
    let flags = if is_directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: a valid C string.
    succeeded(unsafe { libc::unlinkat(parent.as_raw_fd(), name.as_ptr(), flags) })
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn succeeded(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn open_at(directory: RawFd, name: &OsStr, flags: libc::c_int, mode: u32) -> io::Result<OwnedFd> {
    let name = c_name(name)?;
    loop {
        // SAFETY: a valid C string.
        let descriptor = unsafe { libc::openat(directory, name.as_ptr(), flags, mode as libc::c_uint) };
        if descriptor >= 0 {
            // SAFETY: just opened, and nobody else has it.
            return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ELOOP) => return Err(io::Error::other("a symbolic link is in the way")),
            // A link where a directory is wanted is no directory.
            Some(libc::ENOTDIR) if is_link(directory, &name) => {
                return Err(io::Error::other("a symbolic link is in the way"));
            }
            _ => return Err(error),
        }
    }
}

fn is_link(directory: RawFd, name: &CStr) -> bool {
    // SAFETY: plain old data, for which zero is a valid value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a valid C string and a valid place for the answer.
    let result = unsafe { libc::fstatat(directory, name.as_ptr(), &mut found, libc::AT_SYMLINK_NOFOLLOW) };
    result == 0 && found.st_mode & libc::S_IFMT == libc::S_IFLNK
}

/// Somebody else may make it at the same time.
fn make_directory(parent: RawFd, name: &OsStr) -> io::Result<()> {
    let name = c_name(name)?;
    // SAFETY: a valid C string.
    match succeeded(unsafe { libc::mkdirat(parent, name.as_ptr(), DIRECTORY_MODE) }) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn rename_without_replacing(from_holder: RawFd, from: &CStr, to_holder: RawFd, to: &CStr) -> io::Result<()> {
    let (from_name, to_name, flags) = (from.as_ptr(), to.as_ptr(), libc::RENAME_NOREPLACE);
    // glibc has a function for it from 2.28 on.
    // SAFETY: all names are valid C strings; the calls touch no other memory.
    let renamed = unsafe { libc::syscall(libc::SYS_renameat2, from_holder, from_name, to_holder, to_name, flags) };
    let renamed = succeeded(renamed as libc::c_int);
    let Err(error) = renamed else { return Ok(()) };
    if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)) {
        return Err(error);
    }
    // File systems without that flag: a hard link is exclusive as well.
    // SAFETY: as above.
    let linked = succeeded(unsafe { libc::linkat(from_holder, from.as_ptr(), to_holder, to.as_ptr(), 0) });
    match linked {
        // SAFETY: as above.
        Ok(()) => succeeded(unsafe { libc::unlinkat(from_holder, from.as_ptr(), 0) }),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => {
            // SAFETY: as above; plain old data, for which zero is a valid value.
            let is_taken = unsafe {
                let mut found: libc::stat = std::mem::zeroed();
                libc::fstatat(to_holder, to.as_ptr(), &mut found, libc::AT_SYMLINK_NOFOLLOW) == 0
            };
            if is_taken {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            // SAFETY: as above.
            succeeded(unsafe { libc::renameat(from_holder, from.as_ptr(), to_holder, to.as_ptr()) })
        }
    }
}

/// A directory that only we can look into, removed with what is in it.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    _entry: unfinished::Entry,
}

impl PrivateDirectory {
    /// Makes one where temporary files go.
    pub fn new() -> io::Result<Self> {
        let (entry, path) = unfinished::Entry::of_tree(make_temporary)?;
        Ok(Self { path, _entry: entry })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn make_temporary() -> io::Result<PathBuf> {
    let mut template = std::env::temp_dir().join("msmemscope-XXXXXX").into_os_string().into_vec();
    template.push(0);
    // SAFETY: the template ends with a NUL byte and is ours to be changed.
    if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    template.pop();
    Ok(PathBuf::from(OsString::from_vec(template)))
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_reached_through_links_or_outside() {
        let home = tempfile::tempdir().expect("temporary directory");
        let (inside, outside) = (home.path().join("inside"), home.path().join("outside"));
        for path in [&inside, &outside] {
            std::fs::create_dir(path).expect("directory");
        }
        let precious = outside.join("precious");
        std::fs::write(&precious, "precious").expect("file");
        symlink(&outside, inside.join("device_0")).expect("link");
        symlink(&precious, inside.join("file")).expect("link");
        symlink(&inside, home.path().join("link")).expect("link");
        assert!(Directory::open(&home.path().join("link")).is_err());
        let directory = Directory::open(&inside).expect("directory");
        directory.create_new(Path::new("own"), 0o600).expect("file");
        for path in ["device_0/precious", "../outside/precious", "file", "/etc/hostname", "device_0/../own", "", "."] {
            let path = Path::new(path);
            assert!(directory.open_file(path).is_err(), "{path:?}");
            assert!(directory.open_for_appending(path).is_err(), "{path:?}");
            assert!(directory.create_new(path, 0o600).is_err(), "{path:?}");
            assert!(directory.rename(Path::new("own"), &Path::new("file/..").join(path)).is_err(), "{path:?}");
            if path != Path::new("file") {
                assert!(directory.facts(path).is_err(), "{path:?}");
                assert!(directory.remove_file(path).is_err(), "{path:?}");
            }
        }
        assert!(!directory.facts(Path::new("file")).expect("a link").is_file);
        directory.remove_file(Path::new("file")).expect("the link goes");
        assert_eq!(std::fs::read(&precious).expect("still there"), b"precious");
        assert_eq!(std::fs::read_dir(&outside).expect("listing").count(), 1);
        directory.rename(Path::new("own"), Path::new("device_1/dump/own")).expect("renamed");
        assert!(inside.join("device_1/dump/own").is_file());
        symlink(&outside, inside.join("device_1/dump/link")).expect("link");
        for name in ["..", ".", "", "device_1/dump", "/etc"] {
            assert!(directory.remove_tree(OsStr::new(name)).is_err(), "{name}");
        }
        for name in ["device_0", "device_1", "absent"] {
            directory.remove_tree(OsStr::new(name)).expect("removed");
        }
        assert_eq!(directory.names().expect("listing"), Vec::<OsString>::new());
        assert_eq!(std::fs::read(&precious).expect("still there"), b"precious");
    }
}

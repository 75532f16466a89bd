//! Finds the file that a program name stands for.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file a shell would run, or else a file of that name in the working directory: older versions
/// started `msmemscope train.sh` without the `./` a shell asks for.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    find_in(name, std::env::var_os("PATH").as_deref(), Path::new("."))
}

/// A Python script that cannot be executed by itself is run by the Python of the environment.
pub fn with_interpreter(program: &[OsString]) -> Cow<'_, [OsString]> {
    let is_script = Path::new(&program[0]).extension().is_some_and(|extension| extension == "py");
    let script = find(&program[0]).filter(|path| is_script && !is_executable(path));
    let interpreter = ["python3", "python"].into_iter().find(|name| find(OsStr::new(name)).is_some());
    match (script, interpreter) {
        (Some(_), Some(interpreter)) => {
            Cow::Owned(std::iter::once(interpreter.into()).chain(program.iter().cloned()).collect())
        }
        _ => Cow::Borrowed(program),
    }
}

fn find_in(name: &OsStr, search_path: Option<&OsStr>, working_directory: &Path) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let mut candidates = std::env::split_paths(search_path.unwrap_or_default()).map(|directory| directory.join(name));
    candidates.find(|path| is_executable(path)).or_else(|| {
        let here = working_directory.join(name);
        here.is_file().then_some(here)
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_path_comes_before_the_working_directory() {
        let home = tempfile::tempdir().expect("temporary directory");
        let (bin, here) = (home.path().join("bin"), home.path().join("here"));
        for (directory, name, mode) in [(&bin, "both", 0o755), (&here, "both", 0o755), (&bin, "plain", 0o644)] {
            std::fs::create_dir_all(directory).expect("directory");
            std::fs::write(directory.join(name), "").expect("file");
            std::fs::set_permissions(directory.join(name), PermissionsExt::from_mode(mode)).expect("mode");
        }
        std::fs::write(here.join("train.sh"), "").expect("file");
        let find = |name: &str| find_in(OsStr::new(name), Some(bin.as_os_str()), &here);
        assert_eq!(find("both"), Some(bin.join("both")));
        assert_eq!(find("train.sh"), Some(here.join("train.sh")));
        assert_eq!(find("plain"), None, "only files that can be executed are in the search path");
        assert_eq!(find("absent"), None);
        assert_eq!(find("/bin/sh"), Some(PathBuf::from("/bin/sh")));
    }
}

//! Finds what belongs to this program on disk: the recorder and its companions.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The recorder. torch_npu and MindSpore look for exactly this file name in `LD_PRELOAD`.
pub const RECORDER: &str = "libascend_kernel_hook.so";

/// What sees operators of ATB, for each ABI of the C++ library. Both are preloaded: which one matters shows when the job
/// loads its libatb.
pub const ATB_LIBRARIES: [&str; 2] = ["libatb_abi_0_hook.so", "libatb_abi_1_hook.so"];

/// All preload libraries, in the order the documentation names them.
pub const PRELOAD_LIBRARIES: [&str; 5] =
    ["libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so", RECORDER, ATB_LIBRARIES[0], ATB_LIBRARIES[1]];

/// Where the libraries may be, seen from the program: beside it (a build), installed, or in a wheel.
const PLACES: [&str; 3] = [".", "../lib64", "../lib"];

/// Directory of the preload libraries, without symbolic links.
pub fn library_directory() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find my own program file: {error}"))?;
    let program = program.canonicalize().unwrap_or(program);
    let home = program.parent().unwrap_or(Path::new("/"));
    PLACES
        .iter()
        .filter_map(|place| home.join(place).canonicalize().ok())
        .find(|directory| directory.join(RECORDER).is_file())
        .ok_or_else(|| format!("{RECORDER} is neither beside {} nor in ../lib64", program.display()))
}

/// The directory from which a job can import the Python package, if it is installed or built here:
/// seen from the program, the package lies around it (a wheel) or in the source tree (a build).
pub fn python_package_directory() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    let home = program.parent()?;
    let is_package = |directory: &PathBuf| directory.join("msmemscope/_internal.abi3.so").is_file();
    ["../..", "../../python", "../python"]
        .iter()
        .filter_map(|place| home.join(place).canonicalize().ok())
        .find(is_package)
}

/// Why a file or directory should not be trusted, if there is a reason.
pub fn distrust_reason(path: &Path) -> io::Result<Option<&'static str>> {
    let metadata = path.metadata()?;
    // SAFETY: plain system call.
    let user = unsafe { libc::geteuid() };
    Ok(if metadata.uid() != user && metadata.uid() != 0 {
        Some("belongs to another user")
    } else if metadata.mode() & 0o022 != 0 {
        Some("can be written by other users")
    } else {
        None
    })
}

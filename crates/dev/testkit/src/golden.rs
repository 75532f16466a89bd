//! Texts compared with those that were reviewed. `UPDATE_GOLDEN=1` rewrites them; they are reviewed like code.

use std::path::Path;

/// Compares a text with the file of this path below the crate of the test: `golden!("tests/golden/help.txt", &text)`.
#[macro_export]
macro_rules! golden {
    ($path:expr, $actual:expr) => {
        $crate::golden::compare(&::std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join($path), $actual)
    };
}

/// Compares a text with a file.
///
/// # Panics
/// When they differ, or the file cannot be rewritten.
pub fn compare(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let directory = path.parent().expect("golden files are in a directory");
        std::fs::create_dir_all(directory).expect("the directory of golden files can be made");
        std::fs::write(path, actual).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    let shown = path.display();
    assert!(actual == expected, "{shown} is out of date; review and rewrite it with UPDATE_GOLDEN=1. Now:\n{actual}");
}

//! Dump files of several ages, bad files, directories.

mod bad_files;
mod directories;
mod fixtures;
mod mindspore;
mod restored;
mod support;

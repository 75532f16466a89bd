//! `msmemscope`: see the library of this crate.

fn main() -> std::process::ExitCode {
    msmemscope_cli::run(msmemscope_config::Variant::Msmemscope)
}

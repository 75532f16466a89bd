//! `view`: serves the built-in viewer until interrupted.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use msmemscope_config::Invocation;
use msmemscope_viewer::{HAS_FRONT_END, NO_FRONT_END, Patience, Server, Session, ViewSettings, serve};

use crate::analyzing::named_or_latest;
use crate::exit_status::ExitStatus;
use crate::signals::EndSignals;
use crate::terminal::Terminal;
use crate::top::asked_recordings;
use crate::{Outcome, print};
use msmemscope_report::layout;
use msmemscope_report::summary::missing;
use msmemscope_results::recordings::RecordingDirectory;

/// How long to wait for inputs to be opened before the address is printed: what cannot be opened is an error, but
/// nobody wants to wait for large recordings.
const OPENING: Duration = Duration::from_millis(2500);

/// How often to look whether opening has failed after all.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What was asked for.
enum Shown {
    /// Recordings that are being written.
    Jobs(Vec<RecordingDirectory>),
    /// Recordings and other files as they are now.
    Files(Vec<PathBuf>),
}

/// `view [--live] <path>...`
pub fn view_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let port = match invocation.flag_value("port") {
        None => 0,
        Some(text) => port(text)?,
    };
    let shown = match invocation.has_flag("live") {
        true => Shown::Jobs(asked_recordings(&invocation.operands, terminal)?),
        false => Shown::Files(named_or_latest(&invocation.operands, terminal)?),
    };
    let signals = EndSignals::block();
    let server = Server::bind(port, Patience::default())
        .map_err(|error| format!("cannot listen on port {port} of this machine: {error}"))?;
    // Findings are kept beside the recording and read from anywhere.
    layout::use_whole_paths();
    let session = match shown {
        Shown::Jobs(recordings) => Session::follow(recordings, missing),
        Shown::Files(paths) => Session::open(ViewSettings { paths, missing, trusts_summaries: true }),
    };
    session.wait_until_opened(OPENING)?;
    if let Some(notice) = session.notice() {
        terminal.warning(notice);
    }
    let (url, port) = (server.url(), server.port());
    print(format!("{url}\n").as_bytes())?;
    if !HAS_FRONT_END {
        terminal.warning(format!("the page is missing: {NO_FRONT_END}; only data are served"));
    }
    terminal.notice(format!(
        "from another machine: ssh -L {port}:127.0.0.1:{port} {}, then open the same address there; Ctrl-C ends",
        host_name()
    ));
    if !invocation.has_flag("no-browser") && HAS_FRONT_END {
        open_browser(&url);
    }
    let shown = session.clone();
    std::thread::spawn(move || serve(server, shown));
    while !signals.wait(LOOK_INTERVAL) {
        session.wait_until_opened(Duration::ZERO)?;
    }
    session.end();
    Ok(ExitStatus::Success)
}

fn port(text: &OsStr) -> Result<u16, String> {
    let text = text.to_string_lossy();
    text.parse().map_err(|_| format!("--port must be a number from 0 to 65535, not '{text}'"))
}

/// This machine's name, for a command that users copy.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if is_plain { name.to_owned() } else { "<this machine>".to_owned() }
}

/// Opens the page in the browser that `BROWSER` names, else where there is a screen. If there is no browser, the address
/// is on the terminal anyway.
fn open_browser(url: &str) {
    let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| value(name).is_some());
    let browsers = match value("BROWSER").and_then(|names| names.into_string().ok()) {
        Some(names) => names,
        None if has_screen => "xdg-open".to_owned(),
        None => return,
    };
    // Several are names between colons, and a name may have arguments, `%s` among them for the address.
    let _ = browsers.split(':').filter_map(|browser| browser_command(browser, url)).any(|mut command| {
        let quiet = || Stdio::null();
        command.stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().is_ok()
    });
}

/// How a browser is started; nothing if it has no name.
fn browser_command(browser: &str, url: &str) -> Option<Command> {
    let mut words = browser.split_whitespace();
    let mut command = Command::new(words.next()?);
    let arguments: Vec<String> = words.map(|word| word.replace("%s", url)).collect();
    command.args(&arguments);
    if !browser.contains("%s") {
        command.arg(url);
    }
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_the_address_where_they_want_it() {
        let words = |browser: &str| {
            let command = browser_command(browser, "http://here/")?;
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            Some(words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(words("firefox").as_deref(), Some("firefox http://here/"));
        assert_eq!(words("chromium --app=%s --new").as_deref(), Some("chromium --app=http://here/ --new"));
        assert_eq!(words(" "), None);
    }
}

//! The built-in viewer: `msmemscope view` serves a local page that answers questions about recordings.
//!
//! The browser never gets more than a screenful: all work is done here, on a model of the recording in memory.
//!
//! * `server`: requests and answers over HTTP, and who may ask.
//! * `model`: a recording as columns, with level of detail.
//! * `session`: what is open, and how far it has been read.
//! * `findings`: what the analyses say, one sentence each.
//! * `answers`: one module per question of the page; `API.md` describes them.
#![forbid(unsafe_code)]

mod answers;
mod findings;
mod model;
mod server;
mod session;

use std::path::PathBuf;
use std::sync::Arc;

use msmemscope_timeline::Summary;
use msmemscope_trace::Completeness;

pub use server::assets::HAS_FRONT_END;
pub use server::request::Patience;
pub use server::{Server, Stop};
pub use session::Session;

/// Says in sentences what a recording lacks.
pub type MissingText = fn(&Completeness, &Summary) -> Vec<String>;

/// What to show.
#[derive(Clone, Debug)]
pub struct ViewSettings {
    /// Recordings, files, or directories of them.
    pub paths: Vec<PathBuf>,
    /// What recordings lack, in words.
    pub missing: MissingText,
}

/// Serves a session until the server is stopped.
pub fn serve(server: Server, session: Arc<Session>) {
    server.serve(Arc::new(answers::Answers::new(session)));
}

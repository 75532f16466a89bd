//! The built-in viewer: `msmemscope view` serves a local page that answers questions about recordings.
//!
//! The browser never gets more than a screenful: all work is done here, on a model of the recording in memory.
//!
//! * `server`: requests and answers over HTTP, and who may ask.
//! * `model`: a recording as columns, with level of detail.
//! * `session`: what is open; `entry`: one recording, and how far it has been read; `live`: recordings of running jobs;
//!   `summarised`: recordings of which a summary says enough until somebody asks about them.
//! * `findings`: what the analyses say, one sentence each.
//! * `index`: model and findings in a file beside the recording, so that it opens at once the next time.
//! * `answers`: one module per question of the page; `API.md` describes them.
//! * `report`: the same answers and the same page in one file, or as text.
#![forbid(unsafe_code)]

mod answers;
mod entry;
mod findings;
mod index;
mod live;
mod model;
mod report;
mod room;
mod server;
mod session;
mod summarised;

use std::path::PathBuf;
use std::sync::Arc;

use msmemscope_timeline::Summary;
use msmemscope_trace::Completeness;

pub use report::Report;
pub use server::assets::{HAS_FRONT_END, NO_FRONT_END};
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
    /// Whether recordings of many ranks wait until somebody asks about them, and summaries may stand alone.
    pub trusts_summaries: bool,
}

/// Serves a session until the server is stopped.
pub fn serve(server: Server, session: Arc<Session>) {
    server.serve(Arc::new(answers::Answers::new(session)));
}

//! Answers to the questions of the page, one module each. `API.md` describes them.

mod block_life;
mod block_map;
mod curve;
mod findings;
mod flame;
mod flame_tree;
mod holds;
mod least;
mod lines;
mod pool_state;
mod ranks;
mod scope;
mod session;
mod source;
mod steps;
mod tables;
mod tracks;
mod watch;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::entry::{Entry, Rest};
use crate::server::Answerer;
use crate::server::query::{BadParameter, Query};
use crate::server::response::Response;
use crate::session::{Opened, Session};

use scope::Scope;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The question makes no sense.
    Bad(String),
    /// What is asked for is not there.
    Missing(String),
    /// The recording is still being read.
    NotYet(Value),
}

impl From<BadParameter> for Problem {
    fn from(parameter: BadParameter) -> Self {
        Problem::Bad(parameter.0)
    }
}

type Answer = Result<Value, Problem>;

/// Answers questions about a session.
pub(crate) struct Answers {
    session: Arc<Session>,
    ranks: ranks::Ranks,
}

impl Answers {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session, ranks: ranks::Ranks::default() }
    }

    /// The answer to a question, if there is one.
    pub(crate) fn ask(&self, name: &str, query: &str) -> Option<Value> {
        let response = self.find(name, &Query::parse(query)).ok()?;
        serde_json::from_slice(&response.body).ok()
    }

    fn find(&self, name: &str, query: &Query) -> Result<Response, Problem> {
        let Some(opened) = self.session.opened() else {
            return match name {
                "session" => Ok(Response::json(200, &session::not_opened())),
                _ => Err(Problem::NotYet(json!({ "complete": false, "fraction": 0.0 }))),
            };
        };
        let opened = &*opened;
        if name == "session" {
            // The page says which recording it shows, so that one that waits is opened before anything is asked of it.
            if query.number("r")?.is_some() {
                self.session.want(entry(opened, query)?);
            }
            return Ok(Response::json(200, &session::answer(opened)));
        }
        match name {
            "findings" => return Ok(Response::json(200, &findings::answer(opened, query)?)),
            "ranks" => return Ok(Response::json(200, &self.ranks.answer(opened))),
            _ => {}
        }
        let entry = entry(opened, query)?;
        self.session.want(entry);
        readable(entry)?;
        if name == "curve" && entry.model().is_none() {
            return Ok(Response::json(200, &curve::rough(entry, query)?));
        }
        let scope = Scope::new(entry, query)?;
        let csv = query.text("format") == Some("csv");
        let value = match name {
            "curve" => curve::answer(&scope)?,
            "tracks" => tracks::answer(&scope)?,
            "calls" => tracks::calls(&scope)?,
            "blocks" => block_map::answer(&scope)?,
            "block" => block_life::answer(&scope)?,
            "holds" => holds::answer(&scope)?,
            "owners" => holds::owners(&scope)?,
            "lines" => lines::answer(&scope)?,
            "flame" => flame::answer(&scope, opened)?,
            "steps" => steps::answer(&scope)?,
            "steps/bars" => steps::bars(&scope)?,
            "pool" => pool_state::answer(&scope)?,
            "fragmentation" => pool_state::fragmentation(&scope)?,
            "watch" => watch::answer(&scope)?,
            "table/blocks" if csv => return tables::blocks_csv(&scope),
            "table/blocks" => tables::blocks(&scope)?,
            "table/events" if csv => return tables::events_csv(&scope),
            "table/events" => tables::events(&scope)?,
            "source" => source::answer(&scope)?,
            _ => return Err(Problem::Missing("there is no such question".to_owned())),
        };
        Ok(Response::json(200, &scope.enveloped(value)))
    }
}

/// The recording that a question is about.
fn entry<'o>(opened: &'o Opened, query: &Query) -> Result<&'o Arc<Entry>, Problem> {
    let number = query.number("r")?.unwrap_or(0);
    let entry = usize::try_from(number).ok().and_then(|number| opened.entries.get(number));
    entry.ok_or_else(|| Problem::Missing(format!("there is no recording {number}")))
}

/// Why there will never be more to say about a recording than its summary does.
fn readable(entry: &Entry) -> Result<(), Problem> {
    match entry.rest() {
        Some(Rest::SummaryOnly) => Err(Problem::Missing(format!(
            "Only the summary of this process is here. Copy its recording into {} to see more.",
            entry.identity.path
        ))),
        Some(Rest::Failed) => Err(Problem::Missing(entry.failure().unwrap_or_default().to_owned())),
        Some(Rest::Waiting) | None => Ok(()),
    }
}

impl Answerer for Answers {
    fn answer(&self, name: &str, query: &Query) -> Response {
        match self.find(name, query) {
            Ok(response) => response,
            Err(Problem::Bad(reason)) => Response::error(400, &reason),
            Err(Problem::Missing(reason)) => Response::error(404, &reason),
            Err(Problem::NotYet(value)) => Response::json(200, &value),
        }
    }
}

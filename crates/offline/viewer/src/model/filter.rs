//! Which blocks are meant: by owner, thread, step, call site, words and size.

use msmemscope_analysis::names::SiteText;

use crate::server::query::{BadParameter, Query};

use super::Model;
use super::stacks::{FrameText, Site};

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    pub(crate) owner: Option<String>,
    pub(crate) thread: Option<u64>,
    pub(crate) step: Option<u64>,
    /// Number of a line.
    pub(crate) site: Option<u64>,
    pub(crate) text: Option<String>,
    pub(crate) size_min: Option<u64>,
    pub(crate) size_max: Option<u64>,
}

impl Filter {
    pub(crate) fn of(query: &Query) -> Result<Self, BadParameter> {
        Ok(Self {
            owner: query.text("owner").map(str::to_owned),
            thread: query.number("thread")?,
            step: query.number("step")?,
            site: query.number("site")?,
            text: query.text("text").map(str::to_lowercase),
            size_min: query.number("size_min")?,
            size_max: query.number("size_max")?,
        })
    }

    /// Whether a call site that the analyses name is meant, as far as call sites can be told: by owner, line and words.
    pub(crate) fn names(&self, model: &Model, site: &SiteText) -> bool {
        let line = |number: &u64| model.stacks.lines.get(*number as usize).is_some_and(|line| *line.text == *site.line);
        let has = |words: &String| {
            let frames = site.python.iter().chain(&site.native).flat_map(|frame| [&frame.function, &frame.file]);
            [&site.line, &site.operator, &site.owner].into_iter().chain(frames).any(|text| contains(text, words))
        };
        self.owner.as_ref().is_none_or(|owner| is_below(&site.owner, owner))
            && self.site.as_ref().is_none_or(line)
            && self.text.as_ref().is_none_or(has)
    }

    /// Whether everything is meant.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether an owner is the wanted one or one of its parts.
fn is_below(owner: &str, wanted: &str) -> bool {
    owner.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
}

/// Whether a text has words, which are in small letters.
fn contains(text: &str, words: &str) -> bool {
    text.to_lowercase().contains(words)
}

/// Which call sites have words in their line, their operator, or any function or file of their stack.
pub(crate) fn sites_with(model: &Model, words: &str) -> Vec<bool> {
    let stacks = &model.stacks;
    let has_frame = |frame: &FrameText| contains(&frame.function, words) || contains(&frame.file, words);
    let frames: Vec<bool> = stacks.frames.iter().map(has_frame).collect();
    let lines: Vec<bool> = stacks.lines.iter().map(|line| contains(&line.text, words)).collect();
    let has = |site: &Site| {
        lines[site.line as usize]
            || site.operator != 0 && contains(model.texts.get(site.operator), words)
            || site.stack.iter().chain(&site.native).any(|&frame| frames[frame as usize])
    };
    stacks.sites.iter().map(has).collect()
}

/// A filter made quick for one recording.
#[derive(Debug)]
pub(crate) struct BlockFilter<'m> {
    model: &'m Model,
    is_empty: bool,
    owners: Option<Vec<bool>>,
    sites: Option<Vec<bool>>,
    /// Owners and sites with the words; either will do.
    words: Option<(Vec<bool>, Vec<bool>)>,
    thread: Option<u16>,
    step: Option<u32>,
    sizes: (u64, u64),
}

impl<'m> BlockFilter<'m> {
    pub(crate) fn new(model: &'m Model, filter: &Filter) -> Self {
        let owners =
            filter.owner.as_ref().map(|wanted| model.owners.iter().map(|owner| is_below(owner, wanted)).collect());
        let sites =
            filter.site.map(|wanted| model.stacks.sites.iter().map(|site| u64::from(site.line) == wanted).collect());
        let words = filter.text.as_ref().map(|wanted| {
            let owners = model.owners.iter().map(|owner| contains(owner, wanted)).collect();
            (owners, sites_with(model, wanted))
        });
        let thread = filter.thread.map(|wanted| {
            let position = model.threads.iter().position(|&thread| u64::from(thread) == wanted);
            position.map_or(u16::MAX, |position| position as u16)
        });
        Self {
            model,
            is_empty: filter.is_empty(),
            owners,
            sites,
            words,
            thread,
            step: filter.step.map(|step| u32::try_from(step).unwrap_or(u32::MAX)),
            sizes: (filter.size_min.unwrap_or(0), filter.size_max.unwrap_or(u64::MAX)),
        }
    }

    /// Whether a block is meant.
    #[inline]
    pub(crate) fn passes(&self, block: u32) -> bool {
        self.is_empty || self.passes_all(block as usize)
    }

    fn passes_all(&self, block: usize) -> bool {
        let blocks = &self.model.blocks;
        let at = |table: &Vec<bool>, index: u32| table.get(index as usize).copied().unwrap_or(false);
        let (owner, site) = (blocks.owner[block], blocks.site[block]);
        (self.sizes.0..=self.sizes.1).contains(&blocks.bytes[block])
            && self.thread.is_none_or(|thread| blocks.thread[block] == thread)
            && self.step.is_none_or(|step| blocks.step[block] == step)
            && self.owners.as_ref().is_none_or(|owners| at(owners, owner))
            && self.sites.as_ref().is_none_or(|sites| at(sites, site))
            && self.words.as_ref().is_none_or(|(owners, sites)| at(owners, owner) || at(sites, site))
    }
}

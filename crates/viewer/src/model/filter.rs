//! Which blocks are meant: by owner, thread, step, call site, words and size.

use crate::server::query::{BadParameter, Query};

use super::Model;

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

    /// Whether everything is meant.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
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
        let is_below = |owner: &String, wanted: &str| {
            owner.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
        };
        let owners =
            filter.owner.as_ref().map(|wanted| model.owners.iter().map(|owner| is_below(owner, wanted)).collect());
        let sites =
            filter.site.map(|wanted| model.stacks.sites.iter().map(|site| u64::from(site.line) == wanted).collect());
        let words = filter.text.as_ref().map(|wanted| {
            let has = |text: &str| text.to_lowercase().contains(wanted.as_str());
            let owners = model.owners.iter().map(|owner| has(owner)).collect();
            let lines: Vec<bool> = model.stacks.lines.iter().map(|line| has(&line.text)).collect();
            let has_site = |site: &super::stacks::Site| {
                lines[site.line as usize] || site.operator != 0 && has(model.texts.get(site.operator))
            };
            (owners, model.stacks.sites.iter().map(has_site).collect())
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

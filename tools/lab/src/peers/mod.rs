//! handfast beside the systems that people use for the same (`peers/`).
//!
//! Reading order: [`adapters`] says which systems there are; [`rounds`] measures them in turn; [`rows`] says who is ahead;
//! then one file for each experiment.

mod adapters;
mod death;
mod idle;
mod latency;
mod leftovers;
mod rounds;
mod rows;
mod summary;
mod throughput;

use crate::experiment::Experiment;
use crate::result::About;

pub(super) fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(summary::Summary),
        Box::new(latency::ECHO),
        Box::new(latency::IN_PLACE),
        Box::new(throughput::Throughput),
        Box::new(idle::Idle),
        Box::new(death::Death),
    ]
}

fn about(name: &str, title: &str, claim: &str, method: &str) -> About {
    About {
        name: format!("peers-{name}"),
        paper: None,
        title: title.to_owned(),
        claim: claim.to_owned(),
        method: format!("{method} {SAME}"),
    }
}

/// Said of all.
const SAME: &str = "Every server and client is a process of its own; all systems take turns in each round, in the same place, told \
     by the same page of phases; a figure is the median of its rounds. A call is a request that the server sends back, checked by its \
     number. Each peer is set up as its documentation recommends for low latency; the head of its adapter (peers/) says how.";

//! "A Fast Mach Network IPC Implementation" (paper 004): the parts of its section 2.5 that one machine has.

mod ends;
mod merged;
mod moves;

use crate::experiment::Experiment;
use crate::result::About;

pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(merged::Merged),
        Box::new(ends::NoSenders),
        Box::new(moves::Moves),
    ]
}

fn about(name: &str, title: &str, claim: &str, method: &str) -> About {
    About {
        name: format!("004-{name}"),
        paper: Some("004".to_owned()),
        title: title.to_owned(),
        claim: claim.to_owned(),
        method: method.to_owned(),
    }
}

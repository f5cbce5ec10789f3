//! The configuration of a node.

use crate::options::Options;
use crate::rendezvous;
use core::time::Duration;
use handfast_sys::process;
use handfast_wait::Strategy;
use std::path::PathBuf;

/// See [`NodeBuilder`](crate::NodeBuilder).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// Where its names lie; `None`: where the environment says when they are used.
    pub(crate) directory: Option<PathBuf>,
    /// How its ends wait that do not say so.
    pub(crate) options: Options,
    /// Whether it makes links with processes that it is introduced to, or that are introduced to it.
    pub(crate) meets_strangers: bool,
}

impl Configuration {
    /// The defaults of a node whose builder is told nothing.
    pub(crate) fn new() -> Self {
        Self {
            directory: Some(rendezvous::DIRECTORY.into()),
            options: Options::new(),
            meets_strangers: true,
        }
    }

    /// The configuration of the global node.
    pub(crate) fn of_environment() -> Self {
        let introductions = process::variable("HANDFAST_INTRODUCTIONS");
        Self {
            directory: None,
            options: Options::of_environment(),
            meets_strangers: introductions.is_none_or(|how| how != "vine"),
        }
    }

    /// An empty path is the default, as an empty variable is.
    pub(crate) fn set_directory(&mut self, directory: PathBuf) {
        let is_empty = directory.as_os_str().is_empty();
        self.directory = Some(if is_empty {
            rendezvous::DIRECTORY.into()
        } else {
            directory
        });
    }

    /// Where names lie at this moment.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(rendezvous::directory)
    }

    /// The strategy and cap of an end with these options.
    pub(crate) fn resolve(&self, options: Options) -> (Strategy, Option<Duration>) {
        options.over(self.options)
    }
}

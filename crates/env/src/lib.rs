//! Everything a peer takes from the outside world, as one value.
//!
//! ```text
//!            Env
//!   clock · random · files · network · tasks
//!     |        |       |        |        |
//!   real     real    real     real     real      (this machine)
//!   virtual  seeded  SimDisk  SimNet   one thread (a simulation that replays from its seed)
//! ```
//!
//! `main` makes the real one and passes it down; no other code asks the operating system for the time, for
//! random numbers, for a file or for a socket (clippy bans the globals). So a whole peer, or several, can run on
//! a virtual clock, disk and network, and a failure replays from its seed.

#![allow(clippy::disallowed_methods)]

pub mod clock;
pub mod files;
pub mod network;
pub mod random;
pub mod tasks;

use std::{future::Future, pin::Pin, sync::Arc};

pub use clock::Clock;
pub use files::{File, Files};
pub use network::{Address, Listener, Network, Stream};
pub use random::Random;
pub use tasks::Tasks;

/// A future that can be passed between threads and stored.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Holds the five ways to the outside. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub files: Arc<dyn Files>,
    pub network: Arc<dyn Network>,
    pub tasks: Arc<dyn Tasks>,
}

impl Env {
    /// This machine.
    pub fn real() -> Self {
        Self {
            clock: Arc::new(clock::RealClock::new()),
            random: Arc::new(random::RealRandom),
            files: Arc::new(files::RealFiles),
            network: Arc::new(network::RealNetwork::default()),
            tasks: Arc::new(tasks::RealTasks),
        }
    }

    /// A simulated machine whose every choice follows from `seed`. Run it on a current-thread tokio runtime with
    /// paused time; machines that share a `SimNet` can reach one another.
    pub fn simulated(seed: u64, disk: files::sim::SimDisk, network: network::sim::SimNet) -> Self {
        Self {
            clock: Arc::new(clock::SimClock::new()),
            random: Arc::new(random::SeededRandom::new(seed)),
            files: Arc::new(disk),
            network: Arc::new(network),
            tasks: Arc::new(tasks::SimTasks),
        }
    }
}

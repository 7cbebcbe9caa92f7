//! The placement controller: decides where objects run, writes it down, and sums up what comes of it.
//!
//! ```text
//!   store's feed ──> world ──> queue ──> place ──> Assignment ─ ─ ─> sessions ─ ─ ─> members
//!                    (objects,    │                    │ status.clusters <─ ─ ─ ─ ─ ─ ┘
//!                     clusters,   └────> status <──────┘
//!                     policies)             └──> status of the object
//! ```
//!
//! One task for all workspaces reads the feed, keeps what decisions are made from, and decides one object after the
//! other, so that two decisions never promise the same room. Commits are under way meanwhile. What it knows can be
//! read from the store again at any time.

mod audited;
mod clusters;
mod controller;
mod events;
mod failing;
mod holds;
mod leave;
mod namespace;
mod place;
mod queue;
mod record;
mod scale;
mod status;
mod stuck;
mod users;
mod waiting;
mod world;

pub use controller::start;
pub use status::SYNCED;

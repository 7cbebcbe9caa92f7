//! Member clusters: joined, seen, lost, found again, and unjoined; and those that behave badly.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod bad;
mod crowd;
mod guests;
mod joining;
mod sessions;
mod showing;
mod talking;
mod trips;
mod world;

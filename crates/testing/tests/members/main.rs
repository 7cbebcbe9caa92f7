//! Member clusters: joined, seen, lost, found again, and unjoined; and those that behave badly.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod bad;
mod crowd;
mod guests;
#[allow(dead_code)] // It serves other tests too.
#[path = "../copies/hand.rs"]
mod hand;
mod joining;
mod sessions;
mod showing;
mod talking;
mod trips;
mod world;

//! The round trip on simulated members: what is applied once runs on the right clusters and is seen as one. Tests are
//! named after what is asked for: scenarios, what went wrong in others' systems (`d…`), and requirements.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod app;
mod bounds;
mod failing;
mod history;
mod interleavings;
mod isolation;
#[allow(dead_code)]
mod jumping;
mod kinds;
mod leftovers;
mod many;
mod operators;
mod policies;
mod refusals;
mod removal;
mod safety;
mod scenarios;
mod shared;
mod status;
mod strategies;
mod transitions;
mod world;

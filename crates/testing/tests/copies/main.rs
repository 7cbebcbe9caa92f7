//! Copies in members: made, kept and removed as Assignments say, and what is told of them.
//!
//! Assignments are written into the hub's store by hand, so that each test says exactly what is asked of a session.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod apart;
mod churn;
mod hand;
mod kept;
mod leftovers;
mod made;
mod moved;
mod names;
mod removed;
mod rights;
#[allow(dead_code)] // It serves other tests too.
#[path = "../members/world.rs"]
mod world;

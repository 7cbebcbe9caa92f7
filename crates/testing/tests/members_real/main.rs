//! Real Kubernetes clusters, joined, seen and unjoined by the real program.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod one;
mod talking;
mod three;

//! What others wrote for federation, applied to a hub as it stands there: the documents' own text, and the scenarios that
//! say what is to come of it, each by its number.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

#[allow(dead_code)]
#[path = "../roundtrip/app.rs"]
mod app;
#[allow(dead_code)]
#[path = "../roundtrip/history.rs"]
mod history;
#[allow(dead_code)]
#[path = "../roundtrip/jumping.rs"]
mod jumping;
#[allow(dead_code)]
#[path = "../roundtrip/world.rs"]
mod world;

mod bounds;
mod clock;
mod clusters;
mod document;
mod federated;
mod given_up;
mod kinds_of_all_sorts;
mod migration;
mod namespaces;
mod operations;
mod overflow;
mod plain;
mod preferences;
mod removal;
mod retention;
mod scheduling;
mod type_configs;
mod vectors;
mod words;

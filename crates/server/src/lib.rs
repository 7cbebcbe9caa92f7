//! The Kubernetes API server.
//!
//! ```text
//!   listen ──> service: who? what? may they? ──> read · watch · write · delete ──> store
//!   (TLS)      user, request, rbac               one path for every kind           (one history per workspace)
//!                                                     ^
//!                              controllers ───────────┘  (namespaces, garbage, workspaces, expiry)
//! ```
//!
//! Kinds are rows of tables (`machinery::builtin`, `api`); nothing here knows a kind by name but the few rules that
//! are about one thing: access reviews, namespaces, workspaces.

mod addresses;
pub mod admission;
pub mod alarms;
mod apply;
pub mod audit;
pub mod authentication;
pub mod base;
pub mod body;
mod context;
pub mod controllers;
mod decode;
mod delete;
pub mod desk;
mod discovery;
pub mod duty;
pub mod fairness;
mod health;
pub mod hub;
pub mod kubeconfig;
pub mod letters;
pub mod level;
pub mod listen;
pub mod login;
mod managers;
pub mod metrics;
mod negotiate;
mod openapi;
pub mod operate;
mod options;
pub mod parsed;
mod patch;
pub mod peer;
pub mod pki;
mod pods;
mod present;
pub mod rbac;
mod read;
mod readings;
mod recent;
pub mod registry;
mod relay;
mod replace;
pub mod request;
mod reviews;
mod room;
mod selection;
mod served;
pub mod service;
mod shares;
pub mod space;
pub mod streams;
mod swagger;
pub mod tokens;
pub mod trace;
mod uids;
mod usage;
pub mod user;
mod versions;
pub mod views;
mod watch;
mod webhook;
mod write;
pub mod yaml;

pub use hub::{Hub, Options};
pub use options::Query;

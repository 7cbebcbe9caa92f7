//! The Common Expression Language as Kubernetes 1.36 uses it: reading, type check, evaluation within a budget, and an
//! estimate of the cost before anything is evaluated.
//!
//! ```text
//! text ─ parse ─▶ tree ─ check ─▶ types, overloads ─ plan ─▶ steps ─ eval ─▶ value
//!        lex, macros    unify, validate │                         ▲  charging a Budget
//!                                       └─ cost::estimate         └─ Activation: JSON seen through a Decl
//! ```
//!
//! There are crates for CEL in Rust; they check no types, count no cost and know none of Kubernetes' libraries, and an
//! API server must accept exactly the expressions that Kubernetes accepts and stop exactly where it stops. So this one
//! follows cel-go and `k8s.io/apiserver/pkg/cel` to the messages and to single units of cost. Where those let an
//! expression take unbounded time or memory beside its cost (comparing values that share parts, `replace` with long
//! strings, chains of `optMap`), this crate ends with its own bound instead.
//!
//! ```
//! # use std::sync::Arc;
//! # struct Nothing;
//! # impl cel::Host for Nothing {
//! #     fn parse_quantity(&self, _: &str) -> Result<Arc<dyn cel::Quantity>, String> { Err("none".into()) }
//! #     fn check_name(&self, _: &str, _: &str) -> Vec<String> { Vec::new() }
//! # }
//! # let host = Arc::new(Nothing);
//! use cel::{Activation, Budget, Decl, Env, ObjectType, Shape, Value};
//!
//! let int = Arc::new(Decl::new(Shape::Int));
//! let fields = [("replicas".to_owned(), int.clone()), ("max".to_owned(), int)];
//! let schema = Decl::new(Shape::Object(ObjectType::new("Scale", fields)));
//! let env = Env::kubernetes(host).declared("self", &schema);
//! let program = env.compile("self.replicas <= self.max").unwrap();
//!
//! let json = serde_json::json!({"replicas": 2, "max": 3});
//! let activation = Activation::new().with("self", Value::from_json(&json, &schema).unwrap());
//! let mut budget = Budget::default();
//! assert_eq!(program.evaluate(&activation, &mut budget).unwrap().as_bool(), Some(true));
//! assert_eq!(budget.spent(), 5);
//! assert_eq!(program.estimate(&schema).max, 5);
//! ```

pub mod ast;
mod budget;
mod check;
pub mod cost;
mod decl;
mod env;
mod error;
mod escape;
mod eval;
mod functions;
mod lex;
mod library;
mod macros;
mod net;
mod number;
pub mod parse;
mod patches;
mod plan;
mod program;
mod re2;
mod semver;
mod source;
mod time;
pub mod types;
mod unify;
mod url;
mod validate;
pub mod value;

pub use budget::{Budget, MAX_STEPS, PER_CALL_LIMIT};
pub use check::Checked;
pub use cost::{Cost, NoSizes, Size, SizeEstimator};
pub use decl::{Decl, ListType, MAX_REQUEST_BYTES, ObjectType, Shape};
pub use env::{CompileError, Env};
pub use error::{ErrorKind, Eval, EvalError};
pub use escape::{escape, is_reserved, unescape};
pub use functions::Host;
pub use program::{Activation, Program, Record};
pub use source::{Issue, Issues};
pub use types::Type;
pub use value::{Object, Opaque, Quantity, Value};

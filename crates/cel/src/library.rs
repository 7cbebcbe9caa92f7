//! The functions Kubernetes 1.36 enables, a module for each library.

mod arithmetic;
pub mod authorizer;
mod convert;
pub mod format;
mod lists;
mod net;
mod optional;
mod patch;
mod quantity;
mod regex;
mod semver;
mod sets;
mod standard;
mod string_format;
mod strings;
mod times;
mod urls;

pub(crate) use convert::CONVERSIONS;
pub(crate) use lists::{check_key, insert_into};
pub use regex::compile as compile_regex;
pub(crate) use regex::{find_all_with, find_with};
pub(crate) use string_format::{Clause, Verb, clauses};

use crate::functions::Functions;

/// What expressions need that make patches.
pub fn add_patches(functions: &mut Functions) {
    patch::add(functions);
}

/// Every function of the environment Kubernetes compiles expressions in.
pub fn functions() -> Functions {
    let mut functions = Functions::default();
    standard::add(&mut functions);
    convert::add(&mut functions);
    times::add(&mut functions);
    urls::add(&mut functions);
    regex::add(&mut functions);
    lists::add_kubernetes(&mut functions);
    authorizer::add(&mut functions);
    optional::add(&mut functions);
    quantity::add(&mut functions);
    strings::add(&mut functions);
    sets::add(&mut functions);
    net::add(&mut functions);
    format::add(&mut functions);
    lists::add_insert(&mut functions);
    semver::add(&mut functions);
    lists::add_extended(&mut functions);
    functions
}

//! What evaluation can fail with.

use std::fmt;

/// Why an evaluation has no value. Cheap to copy: an error is a value of CEL that `||` may still absorb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvalError(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The budget is spent; nothing absorbs this one.
    CostLimit,
    NoSuchKey,
    IndexOutOfBounds,
    NoSuchAttribute,
    NoSuchOverload,
    DivisionByZero,
    Overflow,
    /// A value that does not fit its schema, or that a function does not accept.
    Invalid,
}

pub type Eval<T> = Result<T, EvalError>;

impl EvalError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        EvalError(Box::new(Inner { kind, message: message.into() }))
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        EvalError::new(ErrorKind::Invalid, message)
    }

    pub fn cost_limit() -> Self {
        EvalError::new(ErrorKind::CostLimit, "operation cancelled: actual cost limit exceeded")
    }

    pub fn no_such_overload() -> Self {
        EvalError::new(ErrorKind::NoSuchOverload, "no such overload")
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        EvalError::new(ErrorKind::NoSuchKey, format!("no such key: {key}"))
    }

    pub(crate) fn out_of_bounds(index: impl fmt::Display) -> Self {
        EvalError::new(ErrorKind::IndexOutOfBounds, format!("index out of bounds: {index}"))
    }

    pub(crate) fn overflow(message: &str) -> Self {
        EvalError::new(ErrorKind::Overflow, message)
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the evaluation as a whole ends with it.
    pub fn is_fatal(&self) -> bool {
        self.0.kind == ErrorKind::CostLimit
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for EvalError {}

//! Configurations that others wrote.

pub mod real;

//! A network in memory.

use std::io;

use super::{Address, Listener, Network, Stream};
use crate::BoxFuture;

/// One machine's view of an in-memory network.
#[derive(Clone, Default)]
pub struct SimNet;

impl Network for SimNet {
    fn listen(&self, _address: Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
    fn dial(&self, _address: Address) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

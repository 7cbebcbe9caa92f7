//! Whose turn it is: how the requests of all workspaces share what one process can do at once.

mod scheduler;

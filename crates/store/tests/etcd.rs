//! The engine on etcd, on a simulated cluster: the contract of a store, several servers, and faults.

mod etcd {
    mod bounds;
    mod contract;
    mod faults;
    mod moves;
    mod servers;
    mod world;
}

use env::{files::sim::SimDisk, network::sim::SimNet};

use super::*;

fn small() -> Options {
    Options {
        first_segment_bytes: 64 << 10,
        segment_bytes: 128 << 10,
        ring_bytes: 16 << 10,
        checkpoint_bytes: 256 << 10,
        ..Options::default()
    }
}

#[tokio::test]
async fn keeps_the_contract_on_a_simulated_disk() {
    let disk = SimDisk::new(1);
    crate::suite::run(async |name| {
        let env = Env::simulated(1, disk.clone(), SimNet::default());
        let store = EmbeddedStore::open(&env, &Path::new("/data").join(name), small()).unwrap();
        Arc::new(store) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_on_a_real_disk() {
    let directory = tempfile::tempdir().unwrap();
    crate::suite::run(async |name| {
        let store =
            EmbeddedStore::open(&Env::real(), &directory.path().join(name), Options::default()).unwrap();
        Arc::new(store) as Arc<dyn Store>
    })
    .await;
}

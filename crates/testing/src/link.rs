//! A link that can be cut: what connects to its port reaches a server, until nothing passes any more.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

/// How often a link that is cut is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// While it is cut nothing passes, and nobody is told.
pub struct Link {
    pub address: SocketAddr,
    cut: Arc<AtomicBool>,
    /// Those that were made, and may have ended since.
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Link {
    pub fn to(server: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let cut = Arc::new(AtomicBool::new(false));
        let connections: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (own, made) = (cut.clone(), connections.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                made.lock().extend(client.try_clone());
                let Ok((from, to)) = client.try_clone().and_then(|it| Ok((it, upstream.try_clone()?))) else {
                    continue;
                };
                let (there, back) = (own.clone(), own.clone());
                thread::spawn(move || pass(client, upstream, &there));
                thread::spawn(move || pass(to, from, &back));
            }
        });
        Link { address, cut, connections }
    }

    /// Whatever is connected is so no more, and is told.
    pub fn snap(&self) {
        for connection in self.connections.lock().drain(..) {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while cut.load(Ordering::SeqCst) {
            thread::sleep(LOOK_EVERY);
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

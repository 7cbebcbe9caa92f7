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

/// How often a link that is cut is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// While it is cut nothing passes, and nobody is told.
pub struct Link {
    pub address: SocketAddr,
    cut: Arc<AtomicBool>,
}

impl Link {
    pub fn to(server: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let cut = Arc::new(AtomicBool::new(false));
        let own = cut.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                let Ok((from, to)) = client.try_clone().and_then(|it| Ok((it, upstream.try_clone()?))) else {
                    continue;
                };
                let (there, back) = (own.clone(), own.clone());
                thread::spawn(move || pass(client, upstream, &there));
                thread::spawn(move || pass(to, from, &back));
            }
        });
        Link { address, cut }
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

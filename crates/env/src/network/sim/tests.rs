use super::*;

/// Two hosts, a listener on the second, and a connection between them.
struct Pair {
    net: SimNet,
    here: Box<dyn Stream>,
    there: Box<dyn Stream>,
    address: Address,
    _listener: Box<dyn Listener>,
}

async fn mk_pair() -> Pair {
    let net = SimNet::new("eu");
    let us = net.host("us");
    let listener = us.listen("0.0.0.0:443".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    assert_eq!(address, SocketAddr::new(us.ip(), 443));
    let (here, accepted) = tokio::join!(net.dial(address), listener.accept());
    let (there, from) = accepted.unwrap();
    assert_eq!(from.ip(), net.ip());
    Pair { net, here: here.unwrap(), there, address, _listener: listener }
}

async fn read(stream: &mut Box<dyn Stream>, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_both_ways_and_an_end_is_seen() {
    let mut pair = mk_pair().await;
    pair.here.write_all(b"ping").await.unwrap();
    assert_eq!(read(&mut pair.there, 4).await, b"ping");
    pair.there.write_all(b"pong").await.unwrap();
    assert_eq!(read(&mut pair.here, 4).await, b"pong");
    let large = vec![7; 1 << 20];
    let (sent, received) = tokio::join!(pair.here.write_all(&large), read(&mut pair.there, large.len()));
    sent.unwrap();
    assert_eq!(received, large);
    pair.here.write_all(b"bye").await.unwrap();
    drop(pair.here);
    let mut rest = Vec::new();
    pair.there.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"bye");
}

#[tokio::test(start_paused = true)]
async fn latency_delays_and_does_not_limit() {
    let mut pair = mk_pair().await;
    pair.net.set_latency("eu", "us", Duration::from_millis(100));
    let started = Instant::now();
    for byte in 0..50u8 {
        pair.here.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(read(&mut pair.there, 50).await, (0..50).collect::<Vec<u8>>());
    assert_eq!(started.elapsed().as_millis(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_partition_holds_back_until_it_heals() {
    let mut pair = mk_pair().await;
    pair.net.partition("us", "eu");
    pair.here.write_all(b"late").await.unwrap();
    let mut one = [0];
    let waited = tokio::time::timeout(Duration::from_secs(3600), pair.there.read(&mut one)).await;
    assert!(waited.is_err(), "nothing passes");
    let dialled = pair.net.dial(pair.address).await.err().map(|error| error.kind());
    assert_eq!(dialled, Some(io::ErrorKind::TimedOut));
    pair.net.heal("eu", "us");
    assert_eq!(read(&mut pair.there, 4).await, b"late");
    assert!(pair.net.dial(pair.address).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_connections_but_not_the_path() {
    let mut pair = mk_pair().await;
    pair.net.reset("eu", "us");
    let mut rest = Vec::new();
    assert_eq!(pair.there.read_to_end(&mut rest).await.unwrap(), 0);
    assert_eq!(pair.here.read_to_end(&mut rest).await.unwrap(), 0);
    assert!(pair.net.dial(pair.address).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn wrong_addresses_are_refused() {
    let net = SimNet::new("eu");
    let us = net.host("us");
    let kind = |result: io::Result<Box<dyn Stream>>| result.err().map(|error| error.kind());
    let nobody = SocketAddr::new(us.ip(), 1);
    assert_eq!(kind(net.dial(nobody).await), Some(io::ErrorKind::ConnectionRefused));
    let nowhere = "192.0.2.1:1".parse().unwrap();
    assert_eq!(kind(net.dial(nowhere).await), Some(io::ErrorKind::HostUnreachable));
    let first = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = first.local_address().unwrap();
    let listened = |result: io::Result<Box<dyn Listener>>| result.err().map(|error| error.kind());
    assert_eq!(listened(net.listen(address).await), Some(io::ErrorKind::AddrInUse));
    assert_eq!(listened(us.listen(address).await), Some(io::ErrorKind::AddrNotAvailable));
    drop(first);
    assert!(net.listen(address).await.is_ok());
    assert_eq!(kind(net.dial(address).await), Some(io::ErrorKind::ConnectionRefused));
}

//! An upgrade is a restart: watches go on where they were, with nothing lost, doubled or listed again.

use std::{
    collections::BTreeMap,
    os::{fd::AsRawFd, unix::net::UnixDatagram},
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use testing::{
    client::{Client, dial},
    hub::eventually,
    patience::STANDSTILL,
    process::{Admin, HubProcess, binary, free_port},
};

use super::*;

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Http1,
    Http2,
}

/// Lists once, then watches from there for ever: over every end of a stream and every broken connection it goes on from
/// the last revision it saw.
struct Informer {
    admin: Arc<Admin>,
    protocol: Protocol,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Every event's type, name and revision.
    events: Vec<(String, String, u64)>,
    connections: usize,
    /// What should not have come: errors of the server's.
    refusals: Vec<String>,
}

impl Informer {
    fn start(admin: &Arc<Admin>, protocol: Protocol, from: u64) -> Arc<Mutex<Seen>> {
        let seen = Arc::<Mutex<Seen>>::default();
        let informer = Informer { admin: admin.clone(), protocol, seen: seen.clone() };
        tokio::spawn(informer.run(from));
        seen
    }

    async fn run(self, mut position: u64) {
        loop {
            // A connection that cannot be made or breaks is tried again: that is what clients do.
            if let Err(error) = self.follow(&mut position).await {
                if error.downcast_ref::<Refusal>().is_some() {
                    self.seen.lock().refusals.push(format!("{error:#}"));
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    async fn open(&self, path: &str) -> Result<Incoming> {
        let Admin { url, ca_pem, certificate_pem, key_pem } = &*self.admin;
        let identity = Some((certificate_pem.as_str(), key_pem.as_str()));
        let response = match self.protocol {
            Protocol::Http2 => {
                let client = Client::connect(url, ca_pem, identity).await?;
                client.send(Method::GET, path, &[], Bytes::new()).await?
            }
            Protocol::Http1 => {
                let stream = dial(url, ca_pem, identity, "http/1.1").await?;
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                let request = Request::get(path).header("host", "hanse").body(Full::new(Bytes::new()))?;
                sender.send_request(request).await?
            }
        };
        if !response.status().is_success() {
            bail!(Refusal(response.status().to_string()));
        }
        Ok(response.into_body())
    }

    async fn follow(&self, position: &mut u64) -> Result<()> {
        let path = format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={position}");
        let mut body = self.open(&path).await?;
        self.seen.lock().connections += 1;
        let mut rest = BytesMut::new();
        while let Some(frame) = body.frame().await {
            rest.extend_from_slice(&frame?.into_data().unwrap_or_default());
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let event: Value = serde_json::from_slice(&rest.split_to(end + 1))?;
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                if kind == "ERROR" {
                    bail!(Refusal(event.to_string()));
                }
                *position = revision_of(&event["object"]);
                if kind != "BOOKMARK" {
                    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    self.seen.lock().events.push((kind, name, *position));
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

async fn connect(admin: &Admin) -> Result<Client> {
    let identity = Some((admin.certificate_pem.as_str(), admin.key_pem.as_str()));
    Client::connect(&admin.url, &admin.ca_pem, identity).await
}

/// Writes for ever, one object after the other, whatever happens to the server: what was not answered is looked up.
async fn write_on(admin: Arc<Admin>, stop: Arc<std::sync::atomic::AtomicBool>) -> Result<usize> {
    let mut count = 0;
    let mut client = connect(&admin).await?;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let name = format!("c{count:05}");
        let object = json!({"metadata": {"name": name}});
        match client.post(CONFIG_MAPS, &object).await {
            Ok(answer) if matches!(answer.code.as_u16(), 201 | 409) => count += 1,
            Ok(answer) if answer.code.is_server_error() => {}
            Ok(answer) => bail!("{}", answer.text()),
            Err(_) => {
                client = loop {
                    match connect(&admin).await {
                        Ok(client) => break client,
                        Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                };
            }
        }
    }
    Ok(count)
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_cross_upgrades_without_listing_again() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let port = free_port()?;
    let mut hub = HubProcess::start_on(&data, port)?;
    let admin = Arc::new(hub.admin()?);
    let start = revision_of(&hub.client().await?.get(CONFIG_MAPS).await?.json());
    let protocols = [Protocol::Http1, Protocol::Http2, Protocol::Http1, Protocol::Http2];
    let informers = protocols.map(|protocol| Informer::start(&admin, protocol, start));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn(write_on(admin.clone(), stop.clone()));
    for round in 0..5 {
        // Every informer is connected, and has seen something of this round.
        for seen in &informers {
            let before = seen.lock().events.len();
            eventually("it is told of something", || async {
                let seen = seen.lock();
                ensure!(seen.refusals.is_empty(), "{:?}", seen.refusals);
                Ok((seen.events.len() > before + 20).then_some(()))
            })
            .await?;
        }
        hub = tokio::task::spawn_blocking({
            let data = data.clone();
            move || -> Result<HubProcess> {
                hub.stop().with_context(|| format!("round {round}"))?;
                HubProcess::start_on(&data, port)
            }
        })
        .await??;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let written = writer.await??;
    ensure!(written > 100, "{written}");

    let list = hub.client().await?.get(CONFIG_MAPS).await?.json();
    let expected: BTreeMap<u64, String> = list["items"]
        .as_array()
        .context("a list")?
        .iter()
        .map(|item| (revision_of(item), item["metadata"]["name"].as_str().unwrap_or_default().to_owned()))
        .filter(|(revision, _)| *revision > start)
        .collect();
    let expected: Vec<_> =
        expected.into_iter().map(|(revision, name)| ("ADDED".to_owned(), name, revision)).collect();
    assert_eq!(expected.len(), written);
    for (seen, protocol) in informers.iter().zip(protocols) {
        eventually("it has seen all", || async {
            Ok((seen.lock().events.len() >= expected.len()).then_some(()))
        })
        .await?;
        let seen = seen.lock();
        assert!(seen.refusals.is_empty(), "{protocol:?}: {:?}", seen.refusals);
        assert!(seen.events == expected, "{protocol:?}: each once, in order, and nothing else");
        assert!(seen.connections >= 6, "{protocol:?}: it went over every restart");
    }
    hub.stop()
}

/// One that has its answer and then says nothing more, not even goodbye.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_clients_that_do_not_answer() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let admin = hub.admin()?;
    let identity = Some((admin.certificate_pem.as_str(), admin.key_pem.as_str()));
    let mut silent = Vec::new();
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}?watch=true")] {
        let stream = dial(&hub.url, &admin.ca_pem, identity, "h2").await?;
        let (mut sender, connection) = hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(
            TokioExecutor::new(),
            TokioIo::new(stream),
        )
        .await?;
        let mut connection = Box::pin(connection);
        let request = Request::get(format!("{}{path}", hub.url)).body(Full::new(Bytes::new()))?;
        let answer = tokio::select! {
            answer = sender.send_request(request) => answer?,
            _ = connection.as_mut() => bail!("it ended"),
        };
        assert_eq!(answer.status(), 200);
        // From here on nobody drives the connection, but it is open.
        silent.push((sender, connection, answer));
    }
    // And one that never finished its handshake.
    let address = hub.url.trim_start_matches("https://").to_owned();
    let unfinished = tokio::net::TcpStream::connect(address).await?;

    tokio::task::spawn_blocking(move || hub.stop()).await??;

    let log = std::fs::read_to_string(data.with_extension("log"))?;
    assert!(log.contains("stopping") && !log.contains("still busy"), "{log}");
    drop((silent, unfinished));
    Ok(())
}

/// `hanse serve` as systemd starts it for a socket: the socket is number 3, and is not this process's to close.
fn mk_activated(listener: &std::net::TcpListener) -> Result<Command> {
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty())?;
    let mut command = Command::new("bash");
    let script = r#"exec 3<&"$0" && LISTEN_PID=$$ LISTEN_FDS=1 exec "$@""#;
    command.args(["-c", script, &listener.as_raw_fd().to_string()]).arg(binary()?);
    Ok(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_socket_of_the_supervisors_no_connection_is_refused() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    // The flag would be another port; what was handed over counts.
    let start = |listener: &std::net::TcpListener| -> Result<HubProcess> {
        let mut hub = HubProcess::start_command(mk_activated(listener)?, &data, free_port()?, &[])?;
        hub.url = format!("https://127.0.0.1:{port}");
        Ok(hub)
    };
    let mut hub = start(&listener)?;
    let admin = Arc::new(hub.admin()?);
    assert_eq!(admin.url, hub.url, "clients are told of the socket that it has");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // A new connection for each request, all the time.
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (admin, stop) = (admin.clone(), stop.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let authority = admin.url.trim_start_matches("https://");
                    tokio::net::TcpStream::connect(authority).await.context("a connection was refused")?;
                    if let Ok(client) = connect(&admin).await {
                        answered += usize::from(client.get(CONFIG_MAPS).await.is_ok());
                    }
                }
                anyhow::Ok(answered)
            })
        })
        .collect();
    for _ in 0..3 {
        hub.stop()?;
        hub = start(&listener)?;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for client in clients {
        ensure!(client.await?? > 0);
    }
    Ok(())
}

#[test]
fn a_supervisor_is_told_when_it_is_ready_and_when_it_stops() -> Result<()> {
    let (directory, data) = mk_place()?;
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(STANDSTILL))?;
    let told = || -> Result<String> {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).context("nothing was told")?;
        Ok(String::from_utf8_lossy(&buffer[..length]).trim().to_owned())
    };
    let mut command = Command::new(binary()?);
    command.env("NOTIFY_SOCKET", &path);
    let hub = HubProcess::start_as(command, &data)?;
    assert_eq!(told()?, "READY=1");
    hub.stop()?;
    assert_eq!(told()?, "STOPPING=1");
    Ok(())
}

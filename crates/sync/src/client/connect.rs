//! From an address and a credential to a connection.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use env::{Address, BoxFuture, Env, Stream};
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use server::pki::EnvTime;
use tokio_rustls::TlsConnector;

use super::{Answer, Error};

/// After so long without a word the other side is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an address may be silent before the next is tried beside it.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// What the other side may send of one answer, and of all, before anybody has read it.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 2 << 20;

/// What a client needs to know of a server, and of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// `https://host:port`, with a path below which the API is, if there is one.
    pub server: String,
    /// PEM; empty: whom this machine trusts.
    pub authority: Vec<u8>,
    /// The name in the server's certificate, if it is not that of its address.
    pub server_name: Option<String>,
    pub identity: Identity,
}

/// Who a client is.
#[derive(Clone, PartialEq, Eq)]
pub enum Identity {
    /// PEM, both.
    Certificate {
        certificate: Vec<u8>,
        key: Vec<u8>,
    },
    Token(String),
}

/// Where requests go.
pub(super) struct Place {
    pub authority: String,
    pub prefix: String,
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl Place {
    pub fn of(access: &Access) -> Result<Place, Error> {
        let wrong = |why: &str| Error::Access(format!("{}: {why}", access.server));
        let uri: Uri = access.server.parse().map_err(|_| wrong("not an address"))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("only https is spoken"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let name = access.server_name.clone().unwrap_or_else(|| host.clone());
        let name = ServerName::try_from(name).map_err(|_| wrong("no name that a certificate could have"))?;
        Ok(Place {
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            port: authority.port_u16().unwrap_or(443),
            host,
            name,
        })
    }
}

pub(super) fn trust(env: &Env, access: &Access) -> Result<ClientConfig, Error> {
    let failed = |what: &str, why: &dyn std::fmt::Display| Error::Access(format!("{what}: {why}"));
    let mut roots = RootCertStore::empty();
    if access.authority.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for certificate in CertificateDer::pem_slice_iter(&access.authority) {
        let certificate = certificate.map_err(|error| failed("the authority's certificate", &error))?;
        roots.add(certificate).map_err(|error| failed("the authority's certificate", &error))?;
    }
    if roots.is_empty() {
        return Err(Error::Access("there is no certificate of an authority to verify the server by".into()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let time = Arc::new(EnvTime(env.clock.clone()));
    let builder = ClientConfig::builder_with_details(provider, time)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed("TLS", &error))?
        .with_root_certificates(roots);
    let mut config = match &access.identity {
        Identity::Token(_) => builder.with_no_client_auth(),
        Identity::Certificate { certificate, key } => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| failed("the client's certificate", &error))?;
            let key =
                PrivateKeyDer::from_pem_slice(key).map_err(|error| failed("the client's key", &error))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| failed("the client's certificate", &error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A connection that a request can be sent on.
pub(super) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub async fn send(self, mut request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
        match self {
            Connection::Http2(mut sender) => {
                sender.ready().await?;
                Ok(Answer { response: sender.send_request(request).await?, connection: None })
            }
            Connection::Http1(mut sender) => {
                // There the host is a header, and the address a path.
                let authority = request.uri().authority().map(|it| it.as_str().to_owned());
                let host = authority.and_then(|it| header::HeaderValue::from_str(&it).ok());
                let path = request.uri().path_and_query().map_or("/", |it| it.as_str()).parse();
                if let (Some(host), Ok(path)) = (host, path) {
                    request.headers_mut().insert(header::HOST, host);
                    *request.uri_mut() = path;
                }
                sender.ready().await?;
                let response = sender.send_request(request).await?;
                Ok(Answer { response, connection: Some(sender) })
            }
        }
    }
}

pub(super) async fn connect(env: &Env, place: &Place, tls: &Arc<ClientConfig>) -> Result<Connection, Error> {
    let found = env.network.resolve(place.host.clone(), place.port).await;
    let addresses = found.map_err(|error| Error::Resolve(format!("cannot find {}: {error}", place.host)))?;
    let stream = dial_any(env, addresses)
        .await
        .map_err(|error| Error::Dial(format!("cannot reach {}: {error}", place.authority)))?;
    let connector = TlsConnector::from(tls.clone());
    let stream = connector.connect(place.name.clone(), stream).await;
    speak(env, stream.map_err(|error| Error::distrusted(&error))?).await
}

/// The first connection that is made to any of these. Each next one is tried when those before it have failed or were
/// silent for a moment, the kinds of addresses in turn: one that swallows all packets holds up nobody (RFC 8305).
async fn dial_any(env: &Env, addresses: Vec<Address>) -> io::Result<Box<dyn Stream>> {
    let mut waiting = in_turn(addresses).into_iter();
    let mut dialling = FuturesUnordered::new();
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    loop {
        if let Some(address) = waiting.next() {
            dialling.push(env.network.dial(address));
        }
        let others_wait = waiting.len() > 0;
        tokio::select! {
            dialled = dialling.next() => match dialled {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => failed = error,
                None => return Err(failed),
            },
            () = env.clock.sleep(NEXT_ADDRESS_AFTER), if others_wait => {}
        }
    }
}

/// Addresses of both kinds in turn, beginning with the kind of the first; each kind in its order.
fn in_turn(addresses: Vec<Address>) -> Vec<Address> {
    let is_first_kind = addresses.first().map(Address::is_ipv6);
    let (first, second): (Vec<Address>, Vec<Address>) =
        addresses.into_iter().partition(|address| Some(address.is_ipv6()) == is_first_kind);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut mixed = Vec::new();
    while first.len() + second.len() > 0 {
        mixed.extend(first.next().into_iter().chain(second.next()));
    }
    mixed
}

/// As [`connect`], in HTTP/1.1, which can be left behind for something else.
pub(super) async fn connect_alone(
    env: &Env,
    place: &Place,
    tls: &Arc<ClientConfig>,
) -> Result<Connection, Error> {
    let mut tls = ClientConfig::clone(tls);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    connect(env, place, &Arc::new(tls)).await
}

async fn speak(
    env: &Env,
    stream: tokio_rustls::client::TlsStream<Box<dyn env::Stream>>,
) -> Result<Connection, Error> {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    if !is_http2 {
        let made = http1::handshake(stream).await;
        let (sender, driver) = made.map_err(|error| Error::broken(&error))?;
        drive(env, driver.with_upgrades());
        return Ok(Connection::Http1(sender));
    }
    let made = http2::Builder::new(Tasks(env.clone()))
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(stream)
        .await;
    let (sender, driver) = made.map_err(|error| Error::broken(&error))?;
    drive(env, driver);
    Ok(Connection::Http2(sender))
}

/// Moves bytes until the connection ends, which it does when nobody can use it any more.
fn drive(env: &Env, driver: impl Future<Output = Result<(), hyper::Error>> + Send + 'static) {
    env.tasks.spawn(Box::pin(async move {
        // Whoever uses the connection is told of its end.
        let _ = driver.await;
    }));
}

/// Runs what HTTP/2 does beside its requests.
#[derive(Clone)]
struct Tasks(Env);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let work: BoxFuture<'static, ()> = Box::pin(future);
        self.0.tasks.spawn(work);
    }
}

#[cfg(test)]
mod tests {
    use env::{Listener, Network};
    use parking_lot::Mutex;

    use super::*;

    fn place(server: &str) -> Result<(String, u16, String), String> {
        let access = Access {
            server: server.into(),
            authority: Vec::new(),
            server_name: None,
            identity: Identity::Token("t".into()),
        };
        let place = Place::of(&access).map_err(|error| error.to_string())?;
        Ok((place.host, place.port, place.prefix))
    }

    /// A network in which some addresses are silent for ever, some refuse, and the others answer.
    #[derive(Default)]
    struct Odd {
        silent: &'static [&'static str],
        refusing: &'static [&'static str],
        dialled: Arc<Mutex<Vec<Address>>>,
    }

    impl Network for Odd {
        fn listen(&self, _: Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }

        fn dial(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
            self.dialled.lock().push(address);
            let among = |them: &[&str]| them.contains(&address.to_string().as_str());
            let (is_silent, refuses) = (among(self.silent), among(self.refusing));
            Box::pin(async move {
                if is_silent {
                    std::future::pending::<()>().await;
                }
                match refuses {
                    true => Err(io::ErrorKind::ConnectionRefused.into()),
                    false => Ok(Box::new(tokio::io::duplex(1).0) as Box<dyn Stream>),
                }
            })
        }

        fn resolve(&self, _: String, _: u16) -> BoxFuture<'_, io::Result<Vec<Address>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
    }

    const FOUND: [&str; 4] = ["[fd00::1]:6443", "[fd00::2]:6443", "10.0.0.1:6443", "10.0.0.2:6443"];

    /// What was dialled, in which order, and what came of it after how long.
    async fn dialling(odd: Odd) -> (Vec<String>, Result<(), io::ErrorKind>, Duration) {
        let dialled = odd.dialled.clone();
        let env = Env { network: Arc::new(odd), ..Env::real() };
        let began = tokio::time::Instant::now();
        let addresses = FOUND.iter().map(|address| address.parse().unwrap()).collect();
        let made = dial_any(&env, addresses).await.map(drop).map_err(|error| error.kind());
        let dialled = dialled.lock().iter().map(Address::to_string).collect();
        (dialled, made, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_swallows_everything_holds_up_nobody() {
        let (dialled, made, _) = dialling(Odd::default()).await;
        assert_eq!(
            (dialled.as_slice(), made),
            (&[FOUND[0].to_owned()][..], Ok(())),
            "one that answers is enough"
        );
        let (dialled, made, took) = dialling(Odd { silent: &FOUND[..2], ..Odd::default() }).await;
        assert_eq!(dialled, [FOUND[0], FOUND[2]], "the other kind of address comes next");
        assert_eq!((made, took), (Ok(()), NEXT_ADDRESS_AFTER));
        let (dialled, made, took) =
            dialling(Odd { silent: &FOUND[..1], refusing: &FOUND[1..3], ..Odd::default() }).await;
        assert_eq!(dialled, [FOUND[0], FOUND[2], FOUND[1], FOUND[3]]);
        assert_eq!((made, took), (Ok(()), NEXT_ADDRESS_AFTER), "who refuses is not waited for");
        let (dialled, made, took) = dialling(Odd { refusing: &FOUND, ..Odd::default() }).await;
        assert_eq!((dialled.len(), made, took), (4, Err(io::ErrorKind::ConnectionRefused), Duration::ZERO));
    }

    #[test]
    fn an_address_says_where_to_go_and_what_is_below_it() {
        let good = [
            ("https://10.0.0.1:6443", ("10.0.0.1", 6443, "")),
            ("https://api.example", ("api.example", 443, "")),
            ("https://[fd00::1]:6443/", ("fd00::1", 6443, "")),
            ("https://hub:7443/clusters/east/", ("hub", 7443, "/clusters/east")),
        ];
        for (server, (host, port, prefix)) in good {
            assert_eq!(place(server), Ok((host.to_owned(), port, prefix.to_owned())), "{server}");
        }
        for server in ["http://a", "a:6443", "", "https://", "https://a b"] {
            assert!(place(server).is_err(), "{server}");
        }
    }
}

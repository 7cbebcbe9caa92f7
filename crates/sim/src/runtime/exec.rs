//! `pods/exec`: commands in a container, over WebSockets as kubectl and client-go speak them.

use std::{io, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use machinery::status::Status;
use serde_json::{Value, json};
use server::{body::Body, streams::Ask};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use super::{Runtime, logs::container_of};
use crate::{
    kubelet::surroundings,
    script::{self, Run, Surroundings},
    tree,
};

/// The newest is preferred; the fifth can close its input.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;

/// Input of one command that is read before its end of line.
const LONGEST_LINE: usize = 64 * 1024;

/// A command to be run.
struct Session {
    runtime: Arc<Runtime>,
    words: Vec<String>,
    around: Surroundings,
    tty: bool,
    stdin: bool,
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

pub async fn open(runtime: Arc<Runtime>, ask: Ask) -> Result<Response<Body>, Status> {
    let pod = Value::Object(ask.pod.tree().map_err(Status::internal)?);
    let container = container_of(ask.query.get("container").unwrap_or_default(), &pod)?;
    let words: Vec<String> = ask.query.all("command").map(str::to_owned).collect();
    if words.is_empty() {
        return Err(Status::bad_request("you must specify at least 1 command for the container"));
    }
    let statuses = tree::items(&pod, "/status/containerStatuses");
    let runs = |it: &Value| tree::text(it, "/name") == container && it.pointer("/state/running").is_some();
    if !statuses.into_iter().any(runs) {
        let message = format!("container not found (\"{container}\")");
        return Err(Status::internal(message));
    }
    let spec = tree::items(&pod, "/spec/containers").find(|it| tree::text(it, "/name") == container).cloned();
    let mut around = surroundings(&pod, &spec.unwrap_or_default());
    around.date = runtime.env.clock.now().strftime("%a %b %e %H:%M:%S UTC %Y").to_string();
    let (tty, stdin) = (ask.query.flag("tty"), ask.query.flag("stdin"));
    let (response, upgrade) = accept(&ask.headers, ask.upgrade)?;
    let tasks = runtime.env.tasks.clone();
    let session = Session { runtime, words, around, tty, stdin };
    tasks.spawn(Box::pin(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        // Whoever asked may have gone.
        let _ = session.hold(socket).await;
    }));
    Ok(response)
}

/// Agrees to speak WebSockets.
fn accept(headers: &HeaderMap, upgrade: Option<OnUpgrade>) -> Result<(Response<Body>, OnUpgrade), Status> {
    let refuse = || Status::bad_request("Upgrade request required: exec is answered over WebSockets here");
    let upgrade = upgrade.ok_or_else(refuse)?;
    let text =
        |name: header::HeaderName| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !text(header::UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err(refuse());
    }
    let offered: Vec<&str> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(',').map(str::trim))
        .collect();
    let protocol = PROTOCOLS.into_iter().find(|it| offered.contains(it)).ok_or_else(|| {
        Status::bad_request(format!("none of the protocols {offered:?} is spoken here, only {PROTOCOLS:?}"))
    })?;
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).ok_or_else(refuse)?;
    let accepted = HeaderValue::try_from(derive_accept_key(key)).map_err(Status::internal)?;
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    fields.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    Ok((response, upgrade))
}

fn closed() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

async fn send(socket: &mut Socket, channel: u8, data: &[u8]) -> io::Result<()> {
    let mut frame = BytesMut::with_capacity(data.len() + 1);
    frame.put_u8(channel);
    frame.put_slice(data);
    socket.send(Message::Binary(frame.freeze())).await.map_err(|_| closed())
}

impl Session {
    async fn hold(&self, mut socket: Socket) -> io::Result<()> {
        let code = match script::run(&self.words, &self.around) {
            Some(Run { ends: None, .. }) if self.stdin => self.converse(&mut socket).await?,
            Some(run) => self.play(&mut socket, run, false).await?,
            None => {
                let name = self.words.first().map_or("", String::as_str);
                let why = format!(
                    "OCI runtime exec failed: exec failed: unable to start container process: exec: \"{name}\": \
                     executable file not found in $PATH"
                );
                let status = json!({
                    "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500, "message": why,
                });
                send(&mut socket, STATUS, status.to_string().as_bytes()).await?;
                return self.end(socket).await;
            }
        };
        let status = match code {
            0 => json!({"metadata": {}, "status": "Success"}),
            code => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
        };
        send(&mut socket, STATUS, status.to_string().as_bytes()).await?;
        self.end(socket).await
    }

    async fn end(&self, mut socket: Socket) -> io::Result<()> {
        let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        socket.close(Some(normal)).await.map_err(|_| closed())
    }

    fn ends(&self, text: &str) -> Vec<u8> {
        match self.tty {
            true => text.replace('\n', "\r\n").into_bytes(),
            false => text.as_bytes().to_vec(),
        }
    }

    /// Writes what a command writes, in its time, and waits for its end. `reads_on`: somebody wants what comes meanwhile.
    async fn play(&self, socket: &mut Socket, run: Run, reads_on: bool) -> io::Result<i32> {
        let clock = &self.runtime.env.clock;
        let mut now = std::time::Duration::ZERO;
        for (at, text) in &run.output {
            clock.sleep(at.saturating_sub(now)).await;
            now = *at;
            send(socket, STDOUT, &self.ends(text)).await?;
        }
        match run.ends {
            // What is typed meanwhile is for whoever reads it next.
            Some((at, code)) if reads_on || at <= now => {
                clock.sleep(at.saturating_sub(now)).await;
                Ok(code)
            }
            Some((at, code)) => tokio::select! {
                () = clock.sleep(at.saturating_sub(now)) => Ok(code),
                () = gone(socket) => Err(closed()),
            },
            None => {
                gone(socket).await;
                Err(closed())
            }
        }
    }

    /// A shell: a line in, what it does out.
    async fn converse(&self, socket: &mut Socket) -> io::Result<i32> {
        const PROMPT: &[u8] = b"# ";
        if self.tty {
            send(socket, STDOUT, PROMPT).await?;
        }
        let mut line = Vec::new();
        let mut last = 0;
        while let Some(Ok(message)) = socket.next().await {
            let data: Bytes = match message {
                Message::Binary(data) => data,
                Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
                Message::Close(_) => return Err(closed()),
                _ => continue,
            };
            match data.split_first() {
                Some((&STDIN, typed)) => {
                    for byte in typed {
                        match byte {
                            b'\r' | b'\n' => {
                                if self.tty {
                                    send(socket, STDOUT, b"\r\n").await?;
                                }
                                let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
                                if text.trim() == "exit" {
                                    return Ok(last);
                                }
                                last = self.command(socket, &text).await?;
                                if self.tty {
                                    send(socket, STDOUT, PROMPT).await?;
                                }
                            }
                            // Ctrl-D
                            0x04 if line.is_empty() => return Ok(last),
                            0x7f | 0x08 => {
                                let erased = line.pop().is_some();
                                if erased && self.tty {
                                    send(socket, STDOUT, b"\x08 \x08").await?;
                                }
                            }
                            _ if line.len() < LONGEST_LINE => {
                                line.push(*byte);
                                if self.tty {
                                    send(socket, STDOUT, &[*byte]).await?;
                                }
                            }
                            _ => {}
                        }
                    }
                }
                Some((&CLOSE, [STDIN])) => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    return if text.is_empty() { Ok(last) } else { self.command(socket, &text).await };
                }
                // The size of somebody's window.
                _ => {}
            }
        }
        Err(closed())
    }

    async fn command(&self, socket: &mut Socket, text: &str) -> io::Result<i32> {
        let words = ["sh".to_owned(), "-c".to_owned(), text.to_owned()];
        match script::run(&words, &self.around) {
            Some(run) => self.play(socket, run, true).await,
            None => Ok(127),
        }
    }
}

/// Resolves when the other end is not there any more.
async fn gone(socket: &mut Socket) {
    while let Some(Ok(message)) = socket.next().await {
        if matches!(message, Message::Close(_)) {
            return;
        }
    }
}

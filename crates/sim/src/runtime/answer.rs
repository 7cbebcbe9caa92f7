//! The ports of simulated pods: whoever asks is told who answers.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use env::{Env, Stream};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Runtime;
use crate::{script, tree};

/// The status code of all answers, if it is not 200.
const CODE: &str = "sim.hanse.io/answer-code";
/// How long an answer takes.
const AFTER: &str = "sim.hanse.io/answer-after";

/// Who answers, and how.
pub struct About {
    cluster: String,
    namespace: String,
    pod: String,
    node: String,
    version: String,
    code: StatusCode,
    after: Duration,
}

impl About {
    pub fn of(cluster: &str, pod: &Value) -> About {
        let image = tree::text(pod, "/spec/containers/0/image");
        let version = match tree::text(pod, "/metadata/labels/app.kubernetes.io~1version") {
            "" => image.rsplit_once(':').map_or("latest", |(_, tag)| tag),
            version => version,
        };
        let code = tree::annotation(pod, CODE).parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
        About {
            cluster: cluster.to_owned(),
            namespace: tree::namespace(pod).to_owned(),
            pod: tree::name(pod).to_owned(),
            node: tree::text(pod, "/spec/nodeName").to_owned(),
            version: version.to_owned(),
            code: code.unwrap_or(StatusCode::OK),
            after: script::duration(tree::annotation(pod, AFTER)).unwrap_or_default(),
        }
    }

    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let text = json!({
            "cluster": self.cluster, "namespace": self.namespace, "pod": self.pod, "node": self.node,
            "version": self.version, "path": path,
        });
        let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
        *response.status_mut() = self.code;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// Listens until nobody sends `about` any more.
pub async fn serve(
    runtime: Arc<Runtime>,
    env: Env,
    place: SocketAddr,
    uid: String,
    mut about: watch::Receiver<Arc<About>>,
) {
    let listener = match env.network.listen(place).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%place, %error, "a simulated pod cannot listen");
            runtime.write(&uid, format!("cannot listen on {place}: {error}"));
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut about) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let work = converse(runtime.clone(), env.clone(), stream, uid.clone(), about.clone());
                env.tasks.spawn(Box::pin(work));
            }
            // Too many open files, most likely.
            Err(_) => env.clock.sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Resolves when the pod does not run any more.
async fn stopped(about: &mut watch::Receiver<Arc<About>>) {
    while about.changed().await.is_ok() {}
}

async fn converse(
    runtime: Arc<Runtime>,
    env: Env,
    stream: Box<dyn Stream>,
    uid: String,
    mut about: watch::Receiver<Arc<About>>,
) {
    let current = about.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (runtime, env, uid) = (runtime.clone(), env.clone(), uid.clone());
        let about = current.borrow().clone();
        async move {
            if !about.after.is_zero() {
                env.clock.sleep(about.after).await;
            }
            let path = request.uri().path();
            runtime.write(&uid, format!("{} {path} {}", request.method(), about.code.as_u16()));
            Ok::<_, Infallible>(about.answer(path))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(60));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Whoever asked and went away is not missed.
        _ = connection => {}
        () = stopped(&mut about) => {}
    }
}

//! The webhook: events are collected into lists and posted to somebody else, again if that fails.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use env::Env;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Semaphore, oneshot};

use super::{
    AuditError,
    outlet::{self, Account, Intake, Item, Mode, Outlet, Waiting},
    receiver::Receiver,
};

const LIST_START: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
const LIST_END: &[u8] = b"]}";
/// Lists under way at once: a receiver that hangs holds no more than these.
const SENDING: usize = 16;
const ATTEMPTS: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;

/// Who is sent events, and in what portions.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// A kubeconfig.
    pub config_file: PathBuf,
    pub mode: Mode,
    /// How long after a failure it is tried again, the first time.
    pub initial_backoff: Duration,
    /// Events that may wait.
    pub buffer: usize,
    /// Events in one list.
    pub batch_size: usize,
    /// A list is sent after this time even if it is not full.
    pub batch_wait: Duration,
    pub throttle: Option<Throttle>,
}

/// How many lists are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    pub per_second: f64,
    pub burst: u32,
}

impl WebhookOptions {
    /// With upstream's numbers.
    pub fn to(config_file: impl Into<PathBuf>) -> WebhookOptions {
        WebhookOptions {
            config_file: config_file.into(),
            mode: Mode::Batch,
            initial_backoff: Duration::from_secs(10),
            buffer: 10_000,
            batch_size: 400,
            batch_wait: Duration::from_secs(30),
            throttle: Some(Throttle { per_second: 10.0, burst: 15 }),
        }
    }
}

pub fn start(env: &Env, options: &WebhookOptions, errors: Counter) -> Result<Outlet, AuditError> {
    let failed = |why| AuditError::Webhook { file: options.config_file.clone(), why };
    let receiver = Receiver::open(env, &options.config_file).map_err(failed)?;
    let (outlet, intake) = outlet::outlet(options.mode, options.buffer, errors);
    let sender = Sender {
        env: env.clone(),
        receiver: Arc::new(receiver),
        account: intake.account(),
        under_way: Arc::new(Semaphore::new(SENDING)),
        options: options.clone(),
    };
    env.tasks.spawn(Box::pin(sender.run(intake)));
    Ok(outlet)
}

struct Sender {
    env: Env,
    receiver: Arc<Receiver>,
    account: Account,
    under_way: Arc<Semaphore>,
    options: WebhookOptions,
}

/// What ended the collecting of a list.
enum End {
    Full,
    /// Somebody wants everything to be out.
    Flush(oneshot::Sender<()>),
    Over,
}

impl Sender {
    async fn run(self, mut intake: Intake) {
        let mut bucket = Bucket::new(self.options.throttle, self.env.clock.elapsed());
        loop {
            let (batch, end) = self.collect(&mut intake).await;
            if !batch.is_empty() {
                let pause = bucket.take(self.env.clock.elapsed());
                if !pause.is_zero() && !matches!(end, End::Over) {
                    self.env.clock.sleep(pause).await;
                }
                self.send(batch).await;
            }
            match end {
                End::Full => {}
                End::Flush(done) => {
                    // All permits are free when nothing is under way.
                    let _ = self.under_way.acquire_many(SENDING as u32).await;
                    let _ = done.send(());
                }
                End::Over => return,
            }
        }
    }

    async fn collect(&self, intake: &mut Intake) -> (Vec<Waiting>, End) {
        let (size, wait) = match self.options.mode {
            Mode::Batch => (self.options.batch_size.max(1), self.options.batch_wait),
            // Somebody waits for each.
            _ => (1, Duration::ZERO),
        };
        let mut batch = Vec::new();
        let mut timer = None;
        while batch.len() < size {
            let item = match &mut timer {
                None => intake.queue.recv().await,
                Some(timer) => tokio::select! {
                    item = intake.queue.recv() => item,
                    () = timer => return (batch, End::Full),
                },
            };
            match item {
                Some(Item::Event(waiting)) => {
                    batch.push(waiting);
                    timer = timer.or_else(|| Some(self.env.clock.sleep(wait)));
                }
                Some(Item::Flush(done)) => return (batch, End::Flush(done)),
                None => return (batch, End::Over),
            }
        }
        (batch, End::Full)
    }

    /// Begins to send a list, when not too many are under way.
    async fn send(&self, batch: Vec<Waiting>) {
        let Ok(permit) = self.under_way.clone().acquire_owned().await else { return };
        let (env, receiver, account) = (self.env.clone(), self.receiver.clone(), self.account.clone());
        let initial = self.options.initial_backoff;
        self.env.tasks.spawn(Box::pin(async move {
            let document = list_of(batch.iter().map(|waiting| &waiting.event));
            let sent = send_until(&env, &receiver, document, initial).await;
            for waiting in batch {
                account.settle(waiting, sent);
            }
            drop(permit);
        }));
    }
}

fn list_of<'a>(events: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
    let len: usize = events.clone().map(|event| event.len() + 1).sum();
    let mut list = BytesMut::with_capacity(LIST_START.len() + len + LIST_END.len());
    list.put_slice(LIST_START);
    for (at, event) in events.enumerate() {
        if at > 0 {
            list.put_u8(b',');
        }
        list.put_slice(event);
    }
    list.put_slice(LIST_END);
    list.freeze()
}

/// Whatever went wrong, there is a chance that it is right again later.
async fn send_until(env: &Env, receiver: &Receiver, document: Bytes, initial: Duration) -> bool {
    let mut pause = initial;
    for attempt in 1..=ATTEMPTS {
        match receiver.send(document.clone()).await {
            Ok(()) => return true,
            Err(error) if attempt == ATTEMPTS => {
                tracing::error!(%error, "the audit webhook does not take events; they are lost");
            }
            Err(error) => {
                tracing::warn!(%error, attempt, "the audit webhook does not take events");
                let spread = (env.random.next_u64() % 1000) as f64 / 5000.0;
                env.clock.sleep(pause.mul_f64(1.0 + spread)).await;
                pause = pause.mul_f64(BACKOFF_FACTOR);
            }
        }
    }
    false
}

/// A token bucket: how long the next list must wait.
struct Bucket {
    throttle: Option<Throttle>,
    tokens: f64,
    last: Duration,
}

impl Bucket {
    fn new(throttle: Option<Throttle>, now: Duration) -> Bucket {
        Bucket { throttle, tokens: throttle.map_or(0.0, |it| f64::from(it.burst)), last: now }
    }

    fn take(&mut self, now: Duration) -> Duration {
        let Some(throttle) = self.throttle else { return Duration::ZERO };
        let gained = now.saturating_sub(self.last).as_secs_f64() * throttle.per_second;
        self.tokens = (self.tokens + gained).min(f64::from(throttle.burst)) - 1.0;
        self.last = now;
        match self.tokens < 0.0 {
            true => Duration::try_from_secs_f64(-self.tokens / throttle.per_second).unwrap_or_default(),
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_lists_go_at_the_rate() {
        let mut bucket = Bucket::new(Some(Throttle { per_second: 10.0, burst: 2 }), Duration::ZERO);
        let waits: Vec<u128> = (0..4).map(|_| bucket.take(Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100, 200]);
        assert_eq!(bucket.take(Duration::from_secs(60)), Duration::ZERO);
        let mut none = Bucket::new(None, Duration::ZERO);
        assert!((0..100).all(|_| none.take(Duration::ZERO).is_zero()));
    }

    #[test]
    fn a_list_is_json() {
        let batch = ["{\"a\":1}", "{\"a\":2}"].map(Bytes::from);
        let list: serde_json::Value = serde_json::from_slice(&list_of(batch.iter())).unwrap();
        assert_eq!((&list["kind"], &list["items"][1]["a"]), (&"EventList".into(), &2.into()));
    }
}

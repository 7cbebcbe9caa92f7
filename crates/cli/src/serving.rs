//! How much a server takes on at once, and what it writes down: flags with kube-apiserver's names and numbers.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use machinery::schema::parse_duration;
use server::{
    Options,
    audit::{AuditOptions, LogOptions, Mode, Throttle, WebhookOptions},
};

/// Limits and audit.
#[derive(Args)]
pub struct ServingArgs {
    /// Requests worked on at once, together with --max-mutating-requests-inflight; workspaces share them. Both 0: no
    /// limit.
    #[arg(long, value_name = "COUNT", default_value_t = 400, help_heading = "Limits")]
    max_requests_inflight: u32,
    /// See --max-requests-inflight: the sum of both counts, for reads and for writes.
    #[arg(long, value_name = "COUNT", default_value_t = 200, help_heading = "Limits")]
    max_mutating_requests_inflight: u32,
    /// Connections at once; more are closed as soon as they are made. 0: no limit.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, help_heading = "Limits")]
    max_connections: usize,
    /// Watches that one workspace may have open; more are refused. 0: no limit.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, help_heading = "Limits")]
    max_workspace_watches: usize,
    /// Objects that one workspace may hold, root excepted; more are refused. 0: no limit.
    #[arg(long, value_name = "COUNT", default_value_t = 0, help_heading = "Limits")]
    max_workspace_objects: u64,
    /// Bytes that the objects of one workspace may have together, root excepted; more are refused. 0: no limit.
    #[arg(long, value_name = "BYTES", default_value_t = 0, help_heading = "Limits")]
    max_workspace_bytes: u64,
    /// Memory for large requests while they are received, of which one workspace gets a quarter; more are refused. 0: no
    /// limit.
    #[arg(long, value_name = "BYTES", default_value_t = 268_435_456, help_heading = "Limits")]
    max_request_bytes_inflight: usize,
    /// The longest a request may take that is not a watch; it may ask for less with ?timeout=.
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration, help_heading = "Limits")]
    request_timeout: Duration,
    /// For at least so long a watch or a paged list can go on from where it was; it is told to begin again after one
    /// and a half times as long.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration, help_heading = "Limits")]
    history: Duration,
    /// For so long after one of its parts has scaled, bounds of an autoscaler that is divided between clusters do not move
    /// between them.
    #[arg(long, value_name = "DURATION", default_value = "2m0s", value_parser = duration)]
    autoscaler_window: Duration,
    #[command(flatten)]
    audit: AuditArgs,
}

/// What is recorded of requests. Bodies of secrets and tokens are never recorded.
#[derive(Args)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// An audit.k8s.io/v1 Policy: which requests are recorded, and how much of them. Read again when it changes; one
    /// that is broken changes nothing. Without it, writes and refusals are recorded, without bodies.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Where a line of JSON is written for each event; - is the standard output.
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Days that a full log is kept; 0: for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    audit_log_maxage: u32,
    /// Full logs that are kept; 0: all.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Megabytes at which a log is full and set aside.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Whether a request waits until its events are in the log.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = ModeArg::Blocking)]
    audit_log_mode: ModeArg,
    /// Events that may wait for the log.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    audit_log_batch_buffer_size: usize,
    /// A kubeconfig that says to whom events are sent.
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// Whether a request waits until its events are sent.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = ModeArg::Batch)]
    audit_webhook_mode: ModeArg,
    /// How long after a failure to send it is tried again, the first time.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    audit_webhook_initial_backoff: Duration,
    /// Events that may wait to be sent; more are dropped, and counted.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: usize,
    /// Events that are sent at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    audit_webhook_batch_max_size: usize,
    /// After this time, events are sent even if there are fewer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Whether sending is slowed down to --audit-webhook-batch-throttle-qps.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    audit_webhook_batch_throttle_enable: bool,
    /// Times per second that events are sent.
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f64,
    /// Times that events are sent at once if none were sent before.
    #[arg(long, value_name = "COUNT", default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// It does not; what finds no room is dropped, and counted.
    Batch,
    /// It does.
    Blocking,
    /// It does, and is refused if that it came cannot be recorded.
    BlockingStrict,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Mode {
        match mode {
            ModeArg::Batch => Mode::Batch,
            ModeArg::Blocking => Mode::Blocking,
            ModeArg::BlockingStrict => Mode::BlockingStrict,
        }
    }
}

impl ServingArgs {
    pub fn options(self) -> Options {
        Options {
            max_requests_inflight: self.max_requests_inflight,
            max_mutating_requests_inflight: self.max_mutating_requests_inflight,
            max_connections: self.max_connections,
            max_workspace_watches: self.max_workspace_watches,
            max_workspace_objects: self.max_workspace_objects,
            max_workspace_bytes: self.max_workspace_bytes,
            max_request_bytes_inflight: self.max_request_bytes_inflight,
            request_timeout: self.request_timeout,
            history_kept: self.history,
            autoscaler_window: self.autoscaler_window,
            audit: self.audit.options(),
            ..Options::default()
        }
    }
}

impl AuditArgs {
    fn options(self) -> AuditOptions {
        let throttle = Throttle {
            per_second: self.audit_webhook_batch_throttle_qps.max(0.001),
            burst: self.audit_webhook_batch_throttle_burst.max(1),
        };
        let log = self.audit_log_path.map(|path| LogOptions {
            path,
            max_size_bytes: self.audit_log_maxsize.saturating_mul(1 << 20),
            max_age_days: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            mode: self.audit_log_mode.into(),
            buffer: self.audit_log_batch_buffer_size,
        });
        let webhook = self.audit_webhook_config_file.map(|config_file| WebhookOptions {
            config_file,
            mode: self.audit_webhook_mode.into(),
            initial_backoff: self.audit_webhook_initial_backoff,
            buffer: self.audit_webhook_batch_buffer_size,
            batch_size: self.audit_webhook_batch_max_size,
            batch_wait: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable.then_some(throttle),
        });
        AuditOptions { policy_file: self.audit_policy_file, log, webhook, ..AuditOptions::default() }
    }
}

/// As Go writes it: `30s`, `1m0s`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let nanos = parse_duration(text)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| "it must not be negative".into())
}

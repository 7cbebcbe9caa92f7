//! What is logged, from the start and while it runs.

use std::{io::IsTerminal, sync::Arc, time::Duration};

use anyhow::Context;
use env::Env;
use http::Method;
use server::operate::LogFilter;
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

use crate::{args::ApiArgs, client};

/// The filter of the program's log, for those who change it.
struct Filter<S>(reload::Handle<EnvFilter, S>);

impl<S: 'static> LogFilter for Filter<S> {
    fn current(&self) -> String {
        self.0.with_current(ToString::to_string).unwrap_or_default()
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        self.0.reload(filter).map_err(|error| error.to_string())
    }
}

/// Begins to log to stderr; with `also`, spans go there too.
pub fn start(
    filter: &str,
    also: Option<impl Layer<Registry> + Send + Sync>,
) -> anyhow::Result<Arc<dyn LogFilter>> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter} is no filter"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    tracing_subscriber::registry().with(also).with(lines.with_filter(filter)).init();
    Ok(Arc::new(Filter(handle)))
}

/// `hanse log-level`.
pub async fn change(
    env: &Env,
    api: ApiArgs,
    level: Option<String>,
    duration: Option<Duration>,
) -> anyhow::Result<()> {
    const PATH: &str = "/clusters/root/debug/flags/v";
    let access = api.access(env)?;
    let told = match level {
        None => client::call_text(env, &access, Method::GET, PATH, String::new()).await?,
        Some(level) => {
            let seconds = duration.map(|it| it.as_secs_f64().ceil() as u64).unwrap_or_default();
            client::call_text(env, &access, Method::PUT, &format!("{PATH}?seconds={seconds}"), level).await?
        }
    };
    print!("{told}");
    Ok(())
}

//! Where time and memory go: what the endpoints under `/debug/pprof` are answered with.

use std::sync::Arc;

use env::{BoxFuture, Env};
use nix::sys::signal::{Signal, raise};
use pprof::{ProfilerGuardBuilder, protos::Message};
use server::operate::{CpuProfiler, HeapProfiler};
use tokio::sync::oneshot;

/// Samples per second; not a round number, so that it does not keep step with what happens every so often.
const FREQUENCY: i32 = 99;

/// Samples all threads by a timer's signal. Until somebody asks there is neither timer nor handler.
pub struct Cpu(pub Env);

impl CpuProfiler for Cpu {
    fn profile(&self, over: BoxFuture<'static, ()>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let env = self.0.clone();
        Box::pin(async move {
            take_one()?;
            // Code that holds locks which the walk over the stack needs as well must not be interrupted by it.
            let guard = ProfilerGuardBuilder::default()
                .frequency(FREQUENCY)
                .blocklist(&["libc", "libgcc", "pthread", "vdso"])
                .build()
                .map_err(|error| error.to_string())?;
            over.await;
            aside(&env, "cpu-profile", move || {
                let report = guard.report().build().map_err(|error| error.to_string())?;
                drop(guard);
                let profile = report.pprof().map_err(|error| error.to_string())?;
                profile.write_to_bytes().map_err(|error| error.to_string())
            })
            .await
        })
    }
}

/// Takes one sample, here. The first one reads how all code of the program is unwound, and allocates for that: if it interrupted
/// the allocator, that would be the end of the program.
fn take_one() -> Result<(), String> {
    // So seldom that the timer does not come first; and wherever that is, for raising a signal is what it interrupts.
    let guard = ProfilerGuardBuilder::default().frequency(1).build().map_err(|error| error.to_string())?;
    raise(Signal::SIGPROF).map_err(|error| error.to_string())?;
    drop(guard);
    Ok(())
}

/// What is alive of what was allocated since the program started, sampled by the allocator.
pub struct Heap(pub Env);

impl HeapProfiler for Heap {
    fn profile(&self) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let env = self.0.clone();
        Box::pin(async move {
            let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else {
                let how =
                    "start the server with _RJEM_MALLOC_CONF=prof:true,lg_prof_sample:19 in its environment";
                return Err(format!("allocations are not sampled: {how}"));
            };
            let mut control = control.clone().lock_owned().await;
            aside(&env, "heap-profile", move || control.dump_pprof().map_err(|error| format!("{error:#}")))
                .await
        })
    }
}

/// Names of functions are looked up in the program's own file, which takes its time: on a thread of its own.
async fn aside(
    env: &Env,
    name: &str,
    work: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static,
) -> Result<Vec<u8>, String> {
    let (sender, done) = oneshot::channel();
    let work = async move {
        let _ = sender.send(work());
    };
    env.tasks.spawn_blocking_loop(name, Box::pin(work));
    done.await.unwrap_or_else(|_| Err("the profile was given up".to_owned()))
}

/// For the server's options.
pub fn tools(env: &Env) -> (Arc<dyn CpuProfiler>, Arc<dyn HeapProfiler>) {
    (Arc::new(Cpu(env.clone())), Arc::new(Heap(env.clone())))
}

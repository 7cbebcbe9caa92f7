//! Child processes that never outlive this one, however it goes.

use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

/// One child in a process group of its own. Dropping it kills the group and reaps the child.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) child: Child,
    binary: PathBuf,
    args: Vec<String>,
    log: PathBuf,
}

impl Process {
    pub(crate) fn spawn(
        name: &'static str,
        binary: &Path,
        args: &[String],
        directory: &Path,
    ) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        fs::File::create(&log)?;
        let child = start(binary, args, directory, &log)?;
        Ok(Self { name, child, binary: binary.to_owned(), args: args.to_vec(), log })
    }

    /// Kills the group and reaps the child.
    pub(crate) fn kill(&mut self) {
        // What was reaped has no id any more that would be its own.
        if let Ok(None) = self.child.try_wait()
            && let Some(group) = rustix::process::Pid::from_raw(self.child.id().cast_signed())
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }

    /// Whether it runs, as far as anybody can tell from outside.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Starts it again as it was, on the same data; its log goes on.
    pub(crate) fn restart(&mut self, directory: &Path) -> Result<()> {
        self.kill();
        self.child = start(&self.binary, &self.args, directory, &self.log)?;
        Ok(())
    }

    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 25;
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(binary: &Path, args: &[String], directory: &Path, log: &Path) -> Result<Child> {
    let output = fs::File::options().append(true).open(log)?;
    Command::new(binary)
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))
}

/// A shell that reads process ids from a pipe; when the pipe closes because this process is gone (killed, or a
/// cluster kept in a `static`, which is never dropped), it kills those groups and removes the directory.
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    const SCRIPT: &str = r#"
        groups=
        while read -r group; do
            case $group in
                -*) groups=$(printf '%s\n' $groups | grep -vx -e "$group") ;;
                *) groups="$groups -$group" ;;
            esac
        done
        [ -z "$groups" ] || kill -s KILL -- $groups
        eval "$2"
        rm -rf -- "$1"
    "#;

    pub(crate) fn new(directory: &Path) -> Result<Self> {
        Self::with(directory, "")
    }

    /// Also runs a script, after the processes are dead.
    pub(crate) fn with(directory: &Path, removal: &str) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", Self::SCRIPT, "guard"])
            .arg(directory)
            .arg(removal)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Self { shell })
    }

    pub(crate) fn watch(&mut self, pid: u32) -> Result<()> {
        let pipe = self.shell.stdin.as_mut().context("the guard has no stdin")?;
        writeln!(pipe, "{pid}").context("the guard is gone")
    }

    /// It is dead, and another may have its id.
    pub(crate) fn forget(&mut self, pid: u32) -> Result<()> {
        let pipe = self.shell.stdin.as_mut().context("the guard has no stdin")?;
        writeln!(pipe, "-{pid}").context("the guard is gone")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its pipe closes (`Child::wait` closes it): the ids it holds are no longer ours.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn when_the_pipe_closes_the_guard_kills_the_groups_and_removes_the_directory() {
        let directory = TempDir::new().expect("a directory");
        let mut guard = Guard::new(directory.path()).expect("a guard");
        let mut children = [(); 2].map(|()| {
            let child = Command::new("sleep").arg("600").process_group(0).spawn().expect("sleep starts");
            guard.watch(child.id()).expect("the guard listens");
            child
        });

        drop(guard.shell.stdin.take());

        for child in &mut children {
            let status = child.wait().expect("it ends");
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        }
        guard.shell.wait().expect("the guard ends");
        assert!(!directory.path().exists());
    }

    #[test]
    fn the_guard_spares_what_it_was_told_to_forget() {
        let directory = TempDir::new().expect("a directory");
        let mut guard = Guard::new(directory.path()).expect("a guard");
        let [mut spared, mut other] = [(); 2].map(|()| {
            let child = Command::new("sleep").arg("600").process_group(0).spawn().expect("sleep starts");
            guard.watch(child.id()).expect("the guard listens");
            child
        });
        guard.forget(spared.id()).expect("the guard listens");

        drop(guard.shell.stdin.take());

        other.wait().expect("it ends");
        guard.shell.wait().expect("the guard ends");
        assert!(spared.try_wait().expect("it can be asked").is_none(), "it runs on");
        spared.kill().expect("it is killed");
        spared.wait().expect("it ends");
    }
}

//! What must be undone, however this process ends.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

/// A shell that reads commands from a pipe and runs them, the last first, when the pipe closes: because this is
/// dropped, or because this process is gone.
pub struct Undo {
    shell: Child,
}

impl Undo {
    const SCRIPT: &str = r#"
        all=
        while IFS= read -r line; do
            all="$line
$all"
        done
        printf '%s' "$all" | while IFS= read -r line; do sh -c "$line"; done
    "#;

    pub fn new() -> Result<Undo> {
        let shell = Command::new("sh")
            .args(["-c", Self::SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Undo { shell })
    }

    /// `line` must be harmless if it was done already.
    pub fn later(&mut self, line: &str) -> Result<()> {
        let pipe = self.shell.stdin.as_mut().context("the shell has no stdin")?;
        writeln!(pipe, "{line}").context("the shell is gone")
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_undone_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("order");
        let mut undo = Undo::new().expect("a shell");
        for word in ["first", "second"] {
            undo.later(&format!("echo {word} >>{}", file.display())).expect("it listens");
        }
        drop(undo);
        assert_eq!(std::fs::read_to_string(file).expect("a file"), "second\nfirst\n");
    }
}

//! A disk of one's own: a file behind a loop device.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{Undo, run};

/// An ext4 filesystem that can be made slow, made to hang, and filled.
pub struct Disk {
    pub path: PathBuf,
    device: String,
    // Declared last, dropped last.
    _undo: Undo,
}

/// Where old cgroups limit what devices do, for all processes together.
const IOPS_LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device";

impl Disk {
    /// `directory` is made and is where it is mounted; the file lies beside it.
    pub fn new(directory: &Path, megabytes: u64) -> Result<Disk> {
        let mut undo = Undo::new()?;
        let image = directory.with_extension("image");
        let (at, file) = (directory.display().to_string(), image.display().to_string());
        fs::create_dir_all(directory)?;
        undo.later(&format!("rm -f '{file}'"))?;
        fs::File::create(&image)?.set_len(megabytes << 20)?;
        run(&["mkfs.ext4", "-q", "-m", "0", &file])?;
        let device = run(&["losetup", "--find", "--show", &file])?;
        undo.later(&format!("losetup -d {device}"))?;
        undo.later(&format!("fsfreeze -u '{at}'; umount '{at}' || umount -l '{at}'"))?;
        run(&["mount", &device, &at])?;
        Ok(Disk { path: directory.to_owned(), device, _undo: undo })
    }

    /// Whether this machine can make a disk slow: it has the old block cgroup.
    pub fn can_be_slow() -> bool {
        Path::new(IOPS_LIMITS).exists()
    }

    /// So many writes per second; `None` for as many as there are.
    ///
    /// # Errors
    /// This machine has no old block cgroup.
    pub fn limit_writes(&self, per_second: Option<u32>) -> Result<()> {
        let name = self.device.trim_start_matches("/dev/");
        let number = fs::read_to_string(format!("/sys/block/{name}/dev"))?;
        let limit = format!("{} {}", number.trim(), per_second.unwrap_or(0));
        fs::write(IOPS_LIMITS, limit).with_context(|| format!("cannot write {IOPS_LIMITS}"))
    }

    /// Every write waits until `thaw`.
    pub fn freeze(&self) -> Result<()> {
        run(&["fsfreeze", "-f", &self.path.display().to_string()]).map(|_| ())
    }

    pub fn thaw(&self) -> Result<()> {
        run(&["fsfreeze", "-u", &self.path.display().to_string()]).map(|_| ())
    }

    /// Leaves no room.
    pub fn fill(&self) -> Result<()> {
        let at = self.path.display().to_string();
        let room = run(&["df", "--output=avail", "-B1", &at])?;
        let room = room.lines().last().unwrap_or_default().trim().to_owned();
        let _ = run(&["fallocate", "-l", &room, &self.ballast()]);
        // What is left: it ends because there is no room.
        let _ = run(&["dd", "if=/dev/zero", "bs=4k", &format!("of={}-rest", self.ballast())]);
        ensure!(Path::new(&self.ballast()).exists(), "nothing was written");
        Ok(())
    }

    pub fn make_room(&self) -> Result<()> {
        for file in [self.ballast(), format!("{}-rest", self.ballast())] {
            let _ = fs::remove_file(file);
        }
        Ok(())
    }

    fn ballast(&self) -> String {
        self.path.join("ballast").display().to_string()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A limit outlives its device, and would be the next one's.
        let _ = self.limit_writes(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_no_room_until_it_is_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = match Disk::new(&directory.path().join("disk"), 20) {
            Ok(disk) => disk,
            Err(error) => {
                eprintln!("not tested: this machine has no loop devices for us: {error:#}");
                return;
            }
        };
        let file = disk.path.join("file");
        disk.fill().expect("filled");
        fs::write(&file, [0; 100_000]).expect_err("no room");
        disk.make_room().expect("emptied");
        fs::write(&file, [0; 100_000]).expect("room");
        disk.freeze().expect("frozen");
        disk.thaw().expect("thawed");
    }
}

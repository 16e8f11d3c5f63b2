//! Notices that files have changed, by the system's events and by a slow look of its own.
//!
//! Directories are watched, not files: editors replace files, and a Kubernetes ConfigMap swaps a
//! symbolic link beside them. An event only says "look again": what counts is whether the files are
//! others than before.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::files::VersionedFile;

/// Some changes raise no event: those on network file systems, and behind further links.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The pause between an event and a look: several files may be replaced at once.
const STEP: Duration = Duration::from_millis(20);
/// Files are taken to be whole when they have not changed for this long.
const SETTLED: Duration = Duration::from_millis(200);
/// Files that go on changing are read after this long.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The files of a configuration.
#[derive(Debug)]
pub(super) struct FileWatcher {
    /// The files as they were last seen.
    files: Vec<VersionedFile>,
    events: Arc<Notify>,
    /// `None` where the system has no events left to give; then only the slow look remains.
    watcher: Option<RecommendedWatcher>,
}

impl FileWatcher {
    /// Watches `files`, which need not exist.
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        let events = Arc::new(Notify::new());
        let waker = Arc::clone(&events);
        let watcher = notify::recommended_watcher(move |_| waker.notify_one());
        let mut watch = FileWatcher {
            files: Vec::new(),
            events,
            watcher: watcher
                .inspect_err(|error| tracing::warn!(%error, "changes are seen every 2 s only"))
                .ok(),
        };
        watch.set_files(files.into_iter().map(VersionedFile::new).collect());
        watch
    }

    /// Watches these files from now on, for changes of the versions that were read.
    pub(super) fn set_files(&mut self, mut files: Vec<VersionedFile>) {
        let directories = |files: &[VersionedFile]| -> HashSet<PathBuf> {
            let directories = files.iter().map(|file| directory(&file.path).to_owned());
            directories.collect()
        };
        let (old, new) = (directories(&self.files), directories(&files));
        if let Some(watcher) = &mut self.watcher {
            for gone in old.difference(&new) {
                // It may be gone in earnest.
                let _ = watcher.unwatch(gone);
            }
            for fresh in new.difference(&old) {
                if let Err(error) = watcher.watch(fresh, RecursiveMode::NonRecursive) {
                    let directory = fresh.display();
                    tracing::warn!(%error, %directory, "changes are seen every 2 s only");
                }
            }
        }
        // A file that stays keeps the version that was looked at before it was read.
        let known: HashMap<_, _> = self.files.iter().map(|file| (&file.path, file)).collect();
        for file in &mut files {
            if let Some(known) = known.get(&file.path) {
                file.clone_from(known);
            }
        }
        self.files = files;
    }

    /// Takes the files as they are now for known: they are about to be read, whatever the reason.
    /// Returns true if they had changed.
    pub(super) fn look(&mut self) -> bool {
        let current = self.current();
        let before = std::mem::replace(&mut self.files, current);
        before != self.files
    }

    fn current(&self) -> Vec<VersionedFile> {
        let files = self.files.iter().map(|file| file.path.clone());
        files.map(VersionedFile::new).collect()
    }

    /// Waits until one of the files is another than when this returned last, or when they were looked at,
    /// and is whole. May be dropped at any time: nothing is known before it returns.
    pub(super) async fn changed(&mut self) {
        loop {
            let mut now = self.current();
            while now == self.files {
                if timeout(LOOK_EVERY, self.events.notified()).await.is_ok() {
                    sleep(STEP).await;
                }
                now = self.current();
            }
            let deadline = Instant::now() + MAX_WAIT;
            let mut still_since = Instant::now();
            while still_since.elapsed() < SETTLED && Instant::now() < deadline {
                sleep(STEP).await;
                let later = self.current();
                if later != now {
                    (now, still_since) = (later, Instant::now());
                }
            }
            if now != self.files {
                self.files = now;
                return;
            }
        }
    }
}

fn directory(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    async fn notices(watch: &mut FileWatcher) {
        let limit = Duration::from_secs(20);
        timeout(limit, watch.changed())
            .await
            .expect("the change is noticed");
    }

    #[tokio::test]
    async fn a_rewritten_file_and_a_replaced_one_are_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.yaml");
        fs::write(&file, "one").expect("written");
        let mut watch = FileWatcher::new(vec![file.clone()]);
        fs::write(&file, "two!").expect("written");
        notices(&mut watch).await;
        fs::write(directory.path().join("b"), "three").expect("written");
        fs::rename(directory.path().join("b"), &file).expect("renamed");
        notices(&mut watch).await;
    }

    #[tokio::test]
    async fn a_change_that_was_looked_at_is_no_news() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.yaml");
        fs::write(&file, "one").expect("written");
        let mut watch = FileWatcher::new(vec![file.clone()]);
        fs::write(&file, "two!").expect("written");
        watch.look();
        let again = timeout(10 * SETTLED, watch.changed()).await;
        assert!(again.is_err(), "it would be read twice");
        fs::write(&file, "three").expect("written");
        notices(&mut watch).await;
    }

    #[tokio::test]
    async fn a_file_is_read_once_it_is_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.yaml");
        fs::write(&file, "old").expect("written");
        let mut watch = FileWatcher::new(vec![file.clone()]);
        let written = file.clone();
        let writer = std::thread::spawn(move || {
            let mut open = fs::File::create(&written).expect("a file");
            for part in ["one, ", "two, ", "three"] {
                open.write_all(part.as_bytes()).expect("written");
                std::thread::sleep(SETTLED / 4);
            }
        });
        notices(&mut watch).await;
        assert_eq!(fs::read_to_string(&file).expect("read"), "one, two, three");
        writer.join().expect("no panic");
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_loses_no_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.yaml");
        fs::write(&file, "one").expect("written");
        let mut watch = FileWatcher::new(vec![file.clone()]);
        fs::write(&file, "two!").expect("written");
        assert!(
            timeout(2 * STEP, watch.changed()).await.is_err(),
            "it may be written further"
        );
        notices(&mut watch).await;
    }

    #[tokio::test]
    async fn a_file_that_changed_between_its_reading_and_its_watching_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("key.pem");
        fs::write(&file, "one").expect("written");
        let mut watch = FileWatcher::new(Vec::new());
        let read = VersionedFile::new(file.clone());
        fs::write(&file, "two!").expect("written");
        watch.set_files(vec![read]);
        notices(&mut watch).await;
    }

    #[tokio::test]
    async fn the_swapped_link_of_a_config_map_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for version in ["..v1", "..v2"] {
            fs::create_dir(at(version)).expect("created");
            fs::write(at(version).join("a.yaml"), version).expect("written");
        }
        symlink("..v1", at("..data")).expect("linked");
        symlink("..data/a.yaml", at("a.yaml")).expect("linked");
        let mut watch = FileWatcher::new(vec![at("a.yaml")]);
        symlink("..v2", at("..new")).expect("linked");
        fs::rename(at("..new"), at("..data")).expect("renamed");
        notices(&mut watch).await;
    }
}

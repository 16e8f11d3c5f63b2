use std::{fs, time::Instant};

use super::queue::{BATCH, batches, clear};
use super::*;

fn record(path: &[u8]) -> Record<'_> {
    Record {
        time: Timestamp::from_micros(0),
        client_ip: [127, 0, 0, 1].into(),
        client: &[],
        method: b"GET",
        texts: RequestTexts {
            path,
            host: b"x",
            ..RequestTexts::default()
        },
        version: Version::HTTP_11,
        status: StatusCode::OK,
        bytes: 0,
        duration: Duration::ZERO,
        delay: None,
        pending: None,
        upstream_time: None,
        route: b"",
        upstream: b"",
        endpoint: b"",
        attempts: 1,
        error: "",
        limits: LoggedDecision::default(),
        costs: &[],
        tls_version: "",
        headers: &[],
    }
}

/// A log, and the count of its lost lines.
fn open(path: &std::path::Path) -> (AccessLog, Counter) {
    let registry = Registry::default();
    let spec = AccessLogSpec::new(LineFormat::Combined, LogTarget::File(path.into()));
    (
        AccessLog::open(&spec, 2, &registry).expect("opens"),
        access_log_dropped(&registry),
    )
}

/// Drops the log; returns whether its writer ended in time.
fn close(log: AccessLog) -> bool {
    let writing = log.writer_handle();
    drop(log);
    writing.wait(DEADLINE)
}

const DEADLINE: Duration = Duration::from_secs(10);

fn wait_for(mut condition: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a test's deadline")]
    let now = Instant::now;
    let start = now();
    while !condition() {
        assert!(now() - start < DEADLINE, "not in time");
        std::thread::yield_now();
    }
}

#[test]
fn every_line_is_written_before_it_closes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let (log, dropped) = open(&path);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let log = &log;
            scope.spawn(move || {
                for i in 0..5_000 {
                    log.record(worker, &record(format!("/{worker}/{i}").as_bytes()));
                }
            });
        }
    });
    assert!(close(log));
    let text = fs::read_to_string(&path).expect("written");
    assert_eq!((text.lines().count(), dropped.get()), (10_000, 0));
    for worker in 0..2 {
        let mine = format!("/{worker}/");
        let numbers: Vec<usize> = text
            .lines()
            .filter_map(|line| line.split_once(&mine)?.1.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(numbers, (0..5_000).collect::<Vec<_>>(), "in order");
    }
}

#[test]
fn a_sleeping_writer_wakes_for_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let (log, _) = open(&path);
    for i in 1..=3 {
        wait_for(|| log.handle.shared.parked.load(Relaxed));
        log.record(0, &record(b"/"));
        wait_for(|| fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == i));
    }
}

#[test]
fn reopens_after_the_file_was_moved() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, moved) = (
        directory.path().join("access.log"),
        directory.path().join("access.log.1"),
    );
    let (log, _) = open(&path);
    log.record(0, &record(b"/before"));
    wait_for(|| fs::read_to_string(&path).is_ok_and(|text| text.contains("/before")));
    fs::rename(&path, &moved).expect("moves");
    log.reopen();
    wait_for(|| path.exists());
    log.record(0, &record(b"/after"));
    assert!(close(log));
    assert!(
        fs::read_to_string(&path)
            .expect("reopened")
            .contains("/after")
    );
    assert!(!fs::read_to_string(&moved).expect("kept").contains("/after"));
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    // Writing to it always says that the disk is full.
    let (log, dropped) = open("/dev/full".as_ref());
    log.record(0, &record(b"/1"));
    log.record(1, &record(b"/2"));
    assert!(close(log));
    assert_eq!(dropped.get(), 2);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let spec = AccessLogSpec::new(LineFormat::Combined, LogTarget::Stdout);
    let mut queue = Queue::new(&spec);
    let long = vec![b'a'; 32 * 1024];
    let pushed: Vec<_> = (0..1_000).map(|_| queue.push(&record(&long))).collect();
    let count = |what| pushed.iter().filter(|pushed| **pushed == what).count();
    let kept = 1_000 - count(PushResult::Dropped);
    assert!((32..1_000).contains(&kept), "{kept}");
    assert_eq!(count(PushResult::BatchReady), 1, "the writer is told once");
    let mut lines = queue.take(Vec::new());
    let parts: Vec<_> = batches(&lines).collect();
    let written = parts.iter().map(|batch| batch.len() / long.len());
    assert_eq!(written.sum::<usize>(), kept);
    let is_right = |batch: &&[u8]| batch.ends_with(b"\n") && batch.len() < 2 * BATCH;
    assert!(parts.iter().all(is_right), "whole lines, and not too many");
    assert!(queue.is_empty() && queue.push(&record(&long)) == PushResult::Queued);
    clear(&mut lines);
    assert!(lines.capacity() > BATCH, "room for the next burst");
    clear(&mut lines);
    assert!(lines.capacity() <= 2 * BATCH, "no burst came");
}

#[test]
fn a_path_that_cannot_be_opened_is_an_error_at_once() {
    let target = LogTarget::File("/nonexistent/access.log".into());
    let spec = AccessLogSpec::new(LineFormat::Json, target);
    let error = AccessLog::open(&spec, 1, &Registry::default()).expect_err("no such directory");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

impl AccessLogSpec {
    /// A log with all fields, hashed keys, and no header fields beside those of every line.
    pub fn new(format: LineFormat, target: LogTarget) -> Self {
        AccessLogSpec {
            format,
            target,
            fields: LogField::all().collect(),
            keys: KeyForm::default(),
            headers: Vec::new(),
            client_columns: Box::default(),
        }
    }
}

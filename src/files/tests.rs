use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::thread;

use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};
use tempfile::TempDir;

use super::*;

const MOST: u64 = 1024;

fn pipe() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pipe");
    mknodat(CWD, &path, Kind::Fifo, Mode::RWXU, 0).expect("a pipe");
    (directory, path)
}

fn said(result: io::Result<impl Sized>) -> String {
    result.err().expect("refused").to_string()
}

#[test]
fn a_file_is_read_up_to_its_bound() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    fs::write(&path, "text").expect("written");
    assert_eq!(read(&path, 4).expect("read"), b"text");
    let error = read(&path, 3).expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    let error = read(directory.path(), 4).expect_err("a directory");
    assert_eq!(error.kind(), ErrorKind::IsADirectory);
    assert_eq!(read(Path::new("/dev/null"), 4).expect("a device"), b"");
}

#[test]
fn a_pipe_without_a_writer_is_refused() {
    let (_directory, path) = pipe();
    let message = said(read(&path, MOST));
    assert!(message.contains("a pipe without a writer"), "{message}");
}

#[test]
fn a_pipe_is_read_to_its_end_however_late_it_is_written() {
    let (_directory, path) = pipe();
    let writer = path.clone();
    let writer = thread::spawn(move || {
        // Waits until it is read.
        let mut pipe = OpenOptions::new()
            .write(true)
            .open(writer)
            .expect("a reader");
        for part in ["one ", "two ", "three"] {
            pipe.write_all(part.as_bytes()).expect("written");
            thread::yield_now();
        }
    });
    assert_eq!(read(&path, MOST).expect("read"), b"one two three");
    writer.join().expect("written");
}

#[test]
fn a_pipe_whose_writer_is_silent_has_a_deadline() {
    let (_directory, path) = pipe();
    // Linux opens a pipe for both without waiting: fifo(7).
    let both = OpenOptions::new().read(true).write(true).open(&path);
    let mut writer = both.expect("a pipe");
    let (reader, _) = open(OpenOptions::new().read(true), &path).expect("a pipe");
    writer.write_all(b"part").expect("written");
    let error = read_pipe(&reader, MOST, Duration::from_millis(10)).expect_err("no end");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_pipe_is_written_to_when_it_has_a_reader() {
    let (_directory, path) = pipe();
    let message = said(append(&path));
    assert!(message.contains("a pipe without a reader"), "{message}");
    let (mut reader, _) = open(OpenOptions::new().read(true), &path).expect("a pipe");
    let mut writer = append(&path).expect("it has a reader");
    writer.write_all(b"line").expect("written");
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"line");
}

#[test]
fn a_socket_is_no_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    for message in [said(read(&path, MOST)), said(append(&path))] {
        assert!(message.contains("socket"), "{message}");
    }
}

#[test]
fn only_a_file_can_be_replaced() {
    let (directory, path) = pipe();
    assert!(said(replaceable(&path)).contains("it is a pipe"));
    assert!(said(replaceable(Path::new("/dev/null"))).contains("it is a device"));
    assert!(replaceable(directory.path()).is_err());
    assert!(replaceable(&directory.path().join("none")).is_ok());
}

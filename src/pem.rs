//! PEM files (RFC 7468), read to their last byte: a block that is damaged is an error with its line,
//! never one block less. Text between blocks is allowed, as `openssl` writes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A block of a PEM file.
#[derive(Debug)]
pub struct Block<'a> {
    /// Its kind, such as `CERTIFICATE`.
    pub label: &'a str,
    /// The line of its beginning, from 1.
    pub line: usize,
    /// The lines of the whole block.
    pub text: &'a str,
    /// Its content.
    pub der: Vec<u8>,
    /// It has the header of a key with a passphrase (RFC 1421).
    pub is_encrypted: bool,
}

/// A place in a PEM file, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct PemError {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub fault: PemFault,
}

/// The fault of a PEM file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemFault {
    /// A line of dashes that is neither a beginning nor an end.
    #[error("`-----BEGIN ..-----` and `-----END ..-----` stand on lines of their own")]
    NotAlone,
    /// A block does not end.
    #[error("the block `{0}` has no end")]
    NoEnd(String),
    /// An end without a beginning, or with another label.
    #[error("`-----END {0}-----` ends no block")]
    NoBeginning(String),
    /// The content is damaged.
    #[error("the content of the block `{0}` is not base64")]
    NotBase64(String),
    /// A block of a kind that is close to a certificate.
    #[error("`{0}` is not a certificate that can be used: expected `CERTIFICATE`")]
    OtherKind(String),
}

/// Returns the blocks of a file.
///
/// # Errors
/// The first line that belongs to no whole block, but looks as if it should.
pub fn blocks(content: &[u8]) -> Result<Vec<Block<'_>>, PemError> {
    let mut blocks = Vec::new();
    // The block that has begun: its label, its line, and where it is in the file.
    let mut open: Option<(&str, usize, usize)> = None;
    let mut start = 0;
    for (number, bytes) in (1..).zip(content.split_inclusive(|&byte| byte == b'\n')) {
        let fail = |fault| {
            Err(PemError {
                line: number,
                fault,
            })
        };
        let line = std::str::from_utf8(bytes).map(str::trim_end);
        let before = start;
        start += bytes.len();
        match (boundary(bytes, line.unwrap_or_default()), open) {
            (Boundary::None, _) => {}
            (Boundary::Broken, _) => return fail(PemFault::NotAlone),
            (Boundary::Begin(label), None) => open = Some((label, number, before)),
            (Boundary::End(label), Some((begun, line, from))) if label == begun => {
                blocks.push(block(label, line, &content[from..start])?);
                open = None;
            }
            (Boundary::End(label), _) => return fail(PemFault::NoBeginning(label.to_owned())),
            (Boundary::Begin(_), Some((label, line, _))) => return no_end(label, line),
        }
    }
    match open {
        Some((label, line, _)) => no_end(label, line),
        None => Ok(blocks),
    }
}

/// Returns the certificates of a file, each with its line. Blocks of other kinds, such as keys, do
/// not count.
///
/// # Errors
/// As [`blocks`]; a block that is meant as a certificate, and cannot be used as one.
pub fn certificates(content: &[u8]) -> Result<Vec<(usize, CertificateDer<'static>)>, PemError> {
    let mut certificates = Vec::new();
    for Block {
        label, line, der, ..
    } in blocks(content)?
    {
        match label {
            "CERTIFICATE" | "X509 CERTIFICATE" => certificates.push((line, der.into())),
            // Such as `TRUSTED CERTIFICATE`, which has more than the certificate in it.
            other if other.contains("CERTIFICATE") => {
                let fault = PemFault::OtherKind(other.to_owned());
                return Err(PemError { line, fault });
            }
            _ => {}
        }
    }
    Ok(certificates)
}

/// The role of a line in a file of blocks.
enum Boundary<'a> {
    Begin(&'a str),
    End(&'a str),
    /// A boundary that is not alone in its line.
    Broken,
    None,
}

fn boundary<'a>(bytes: &[u8], line: &'a str) -> Boundary<'a> {
    let label = |prefix| line.strip_prefix(prefix)?.strip_suffix(DASHES);
    let is_label = |label: &&str| !label.contains(DASHES);
    if let Some(label) = label(BEGIN).filter(is_label) {
        Boundary::Begin(label)
    } else if let Some(label) = label(END).filter(is_label) {
        Boundary::End(label)
    } else if [BEGIN, END].iter().any(|text| contains(bytes, text)) {
        Boundary::Broken
    } else {
        Boundary::None
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

fn no_end<T>(label: &str, line: usize) -> Result<T, PemError> {
    let fault = PemFault::NoEnd(label.to_owned());
    Err(PemError { line, fault })
}

/// The block in these lines, of which the first is number `line`.
fn block<'a>(label: &'a str, line: usize, content: &'a [u8]) -> Result<Block<'a>, PemError> {
    let wrong = |line| PemError {
        line,
        fault: PemFault::NotBase64(label.to_owned()),
    };
    let text = std::str::from_utf8(content).map_err(|_| wrong(line))?;
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let inner = &lines[1..lines.len() - 1];
    // Header fields (RFC 1421) end with an empty line.
    let has_headers = inner.first().is_some_and(|first| first.contains(':'));
    let headers = inner.iter().position(|line| line.is_empty());
    let headers = headers.filter(|_| has_headers).unwrap_or(0);
    let mut encoded = String::with_capacity(content.len());
    for (number, part) in (line + 1..).zip(inner).skip(headers) {
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/= \t".contains(&byte);
        if !part.bytes().all(is_base64) {
            return Err(wrong(number));
        }
        encoded.extend(part.split_ascii_whitespace());
    }
    let der = STANDARD.decode(encoded).map_err(|_| wrong(line))?;
    if der.is_empty() {
        return Err(wrong(line));
    }
    Ok(Block {
        label,
        line,
        text,
        der,
        is_encrypted: inner[..headers]
            .iter()
            .any(|line| line.starts_with("Proc-Type: 4,ENCRYPTED")),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pem(label: &str, content: &[u8]) -> String {
        let encoded = STANDARD.encode(content);
        let lines: Vec<_> = encoded
            .as_bytes()
            .chunks(64)
            .map(String::from_utf8_lossy)
            .collect();
        format!(
            "{BEGIN}{label}-----\n{}\n{END}{label}-----\n",
            lines.join("\n")
        )
    }

    fn fault(text: &str) -> (usize, PemFault) {
        let error = blocks(text.as_bytes()).expect_err("it is damaged");
        (error.line, error.fault)
    }

    #[test]
    fn text_around_blocks_does_not_count() {
        let [one, two] = [&b"one"[..], b"two"].map(|content| pem("CERTIFICATE", content));
        let text = format!("\nsubject: \u{fc} -----\n{one}# comment ---- \n\r\n{two}the end");
        for text in [
            text.replace('\n', "\r\n"),
            text.replace("-----\n", "----- \t\n"),
            text,
        ] {
            let found = certificates(text.as_bytes()).expect("whole blocks");
            assert_eq!(found.len(), 2, "{text}");
            assert_eq!((found[0].0, found[0].1.as_ref()), (3, &b"one"[..]));
            assert_eq!(found[1].1.as_ref(), b"two");
        }
        assert!(blocks(b"\xff\xfe no block").expect("none").is_empty());
    }

    #[test]
    fn a_damaged_block_is_named_by_its_line() {
        let whole = pem("CERTIFICATE", &[7; 100]);
        let label = || "CERTIFICATE".to_owned();
        let joined = format!("{}{whole}", whole.trim_end());
        assert_eq!(fault(&joined), (5, PemFault::NotAlone));
        let indented: String = whole.lines().map(|line| format!("  {line}\n")).collect();
        assert_eq!(
            fault(&format!("{whole}{indented}")),
            (6, PemFault::NotAlone)
        );
        let cut = &whole[..whole.len() - 26];
        assert_eq!(fault(cut), (1, PemFault::NoEnd(label())));
        assert_eq!(
            fault(&format!("{cut}{whole}")),
            (1, PemFault::NoEnd(label()))
        );
        let headless = whole.split_once('\n').expect("lines").1;
        assert_eq!(fault(headless), (4, PemFault::NoBeginning(label())));
        let other = whole.replace("END CERTIFICATE", "END KEY");
        assert_eq!(fault(&other), (5, PemFault::NoBeginning("KEY".to_owned())));
        let damaged = whole.replacen("Bwc", "B*c", 1);
        assert_eq!(fault(&damaged), (2, PemFault::NotBase64(label())));
        let shorter = whole.replacen("Bwc", "Bw", 1);
        assert_eq!(fault(&shorter), (1, PemFault::NotBase64(label())));
        let empty = format!("{BEGIN}X-----\n{END}X-----\n");
        assert_eq!(fault(&empty), (1, PemFault::NotBase64("X".to_owned())));
    }

    #[test]
    fn a_certificate_of_another_kind_is_no_certificate_less() {
        let text = pem("PRIVATE KEY", b"key") + &pem("TRUSTED CERTIFICATE", b"der");
        let error = certificates(text.as_bytes()).expect_err("it cannot be used");
        let fault = PemFault::OtherKind("TRUSTED CERTIFICATE".to_owned());
        assert_eq!(error, PemError { line: 4, fault });
    }

    #[test]
    fn headers_of_a_block_are_no_content() {
        let whole = pem("RSA PRIVATE KEY", b"key");
        let encrypted = whole.replacen(
            "-----\n",
            "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n",
            1,
        );
        let found = |text: &str| {
            let blocks = blocks(text.as_bytes()).expect("whole");
            (blocks[0].is_encrypted, blocks[0].der.clone())
        };
        assert_eq!(found(&whole), (false, b"key".to_vec()));
        assert_eq!(found(&encrypted), (true, b"key".to_vec()));
    }

    proptest! {
        /// Whatever a file of two blocks loses, it is an error or both are there, unless a whole
        /// boundary is gone.
        #[test]
        fn no_block_vanishes_if_a_file_is_changed(at in 0_usize..200, byte in any::<u8>()) {
            let mut text = [pem("CERTIFICATE", &[1; 40]), pem("CERTIFICATE", &[2; 40])].concat().into_bytes();
            let at = at % text.len();
            text[at] = byte;
            if let Ok(found) = certificates(&text) {
                prop_assert_eq!(found.len(), 2);
            }
        }
    }
}

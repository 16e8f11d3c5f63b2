//! Values that both formats write the same: numbers, addresses, versions.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use http::Version;

use crate::clock::whole_micros;

pub(super) fn version(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2.0",
        Version::HTTP_3 => b"HTTP/3.0",
        _ => b"HTTP/1.1",
    }
}

pub(super) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let (mut text, mut end) = ([0; 16], 0);
            for octet in address.octets() {
                let (digits, length) = OCTETS[usize::from(octet)];
                text[end..end + 4].copy_from_slice(&digits);
                end += length;
            }
            // The last has no dot.
            out.extend_from_slice(&text[..end - 1]);
        }
        IpAddr::V6(address) => write!(out, "{address}").expect("writing to a Vec cannot fail"),
    }
}

/// Every octet with a dot behind it, and how long that is.
static OCTETS: [([u8; 4], usize); 256] = {
    let mut octets = [([b'.'; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let (text, length) = &mut octets[octet];
        let mut power = 100;
        while power > 0 {
            if octet >= power || power == 1 {
                text[*length] = b'0' + (octet / power % 10) as u8;
                *length += 1;
            }
            power /= 10;
        }
        *length += 1;
        octet += 1;
    }
    octets
};

pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

pub(super) fn milliseconds(out: &mut Vec<u8>, duration: Duration) {
    let micros = whole_micros(duration);
    number(out, micros / 1_000);
    out.push(b'.');
    digits::<3>(out, micros % 1_000);
}

/// Appends the last digits of a number, with zeros in front.
pub(super) fn digits<const COUNT: usize>(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; COUNT];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&digits);
}

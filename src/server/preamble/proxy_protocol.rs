//! Headers of the PROXY protocol, versions 1 and 2, as HAProxy's `proxy-protocol.txt` specifies
//! them. Parses bytes only; the reader asks how many to read, so that none behind it is read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::net::peer_address::PeerAddress;

/// The first bytes of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The length of the fixed part of version 2, which ends with the length of the rest.
const FIXED: usize = 16;
/// The longest header of version 2: addresses and TLVs of known proxies take some 500 bytes.
const MAX_V2: usize = 4096;

/// The longest header of version 1, with its line break.
const MAX_V1: usize = 107;
/// The shortest header of either version: `PROXY UNKNOWN` and a line break.
const SHORTEST: usize = 15;

/// The TLV that has a checksum of the whole header.
const CRC32C: u8 = 3;

/// The client that a header names, with the port that it connected to. `None` for the peer itself, such as a
/// health check of the proxy.
pub(super) type NamedClient = Option<(PeerAddress, Option<u16>)>;

/// The reason why bytes are no header.
pub(super) type InvalidHeader = &'static str;

const MISSING: InvalidHeader = "the connection does not begin with a header of the PROXY protocol";
const TOO_LONG: InvalidHeader = "the header of the PROXY protocol is too long";
const MALFORMED: InvalidHeader = "the header of the PROXY protocol is malformed";
const OTHER_CHECKSUM: InvalidHeader = "the header of the PROXY protocol has another checksum";

/// Returns how many bytes to read next; none once the header is whole.
///
/// # Errors
/// When no header begins with `bytes`.
pub(super) fn missing(bytes: &[u8]) -> Result<usize, InvalidHeader> {
    let begins = |start: &[u8]| {
        let length = start.len().min(bytes.len());
        bytes[..length] == start[..length]
    };
    if begins(b"PROXY ") {
        return missing_of_v1(bytes);
    }
    if !begins(SIGNATURE) {
        return Err(MISSING);
    }
    let Some(length) = bytes.get(14..FIXED) else {
        return Ok(FIXED - bytes.len());
    };
    let length = FIXED + usize::from(u16::from_be_bytes([length[0], length[1]]));
    match length {
        ..=MAX_V2 => Ok(length - bytes.len()),
        _ => Err(TOO_LONG),
    }
}

fn missing_of_v1(bytes: &[u8]) -> Result<usize, InvalidHeader> {
    if bytes.len() < SHORTEST {
        return Ok(SHORTEST - bytes.len());
    }
    match bytes {
        [.., b'\r', b'\n'] => Ok(0),
        _ if bytes.contains(&b'\n') => Err(MALFORMED),
        _ if bytes.len() >= MAX_V1 => Err(TOO_LONG),
        [.., b'\r'] => Ok(1),
        // No more than a line break is certain to follow.
        _ => Ok(2.min(MAX_V1 - bytes.len())),
    }
}

/// Parses a whole header.
///
/// # Errors
/// When it is malformed, or its checksum differs.
pub(super) fn parse(header: &[u8]) -> Result<NamedClient, InvalidHeader> {
    match header.strip_prefix(SIGNATURE) {
        Some(rest) => parse_v2(header, rest),
        None => parse_v1(header).ok_or(MALFORMED),
    }
}

fn parse_v1(header: &[u8]) -> Option<NamedClient> {
    let line = std::str::from_utf8(header).ok()?.strip_suffix("\r\n")?;
    let mut words = line.strip_prefix("PROXY ")?.split(' ');
    let (source, ports) = match words.next()? {
        "UNKNOWN" => return Some(None),
        "TCP4" => addresses::<Ipv4Addr>(&mut words)?,
        "TCP6" => addresses::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    words.next().is_none().then(|| tcp(source, ports))
}

/// The source's address, and the ports of source and destination, if the destination's address is
/// sound, too.
fn addresses<'a, A>(words: &mut impl Iterator<Item = &'a str>) -> Option<(IpAddr, [u16; 2])>
where
    A: FromStr + Into<IpAddr>,
{
    let mut address = || words.next()?.parse::<A>().ok().map(Into::into);
    let (source, _destination) = (address()?, address()?);
    let mut port = || {
        let word = words.next()?;
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| word.parse().ok()).flatten()
    };
    Some((source, [port()?, port()?]))
}

fn parse_v2(header: &[u8], rest: &[u8]) -> Result<NamedClient, InvalidHeader> {
    let &[command, family, _, _, ref block @ ..] = rest else {
        return Err(MALFORMED);
    };
    let (source, tlvs) = match (command, family) {
        // LOCAL: the proxy's own connection, whatever else the header says.
        (0x20, _) => return Ok(None),
        // UNSPEC: the addresses are not defined.
        (0x21, 0x00) => return Ok(None),
        (0x21, 0x11) => source::<4>(block)?,
        (0x21, 0x21) => source::<16>(block)?,
        // AF_UNIX: two paths of 108 bytes.
        (0x21, 0x31) => match block.get(216..) {
            Some(tlvs) => (Some((PeerAddress::Unix, None)), tlvs),
            None => return Err(MALFORMED),
        },
        _ => return Err(MALFORMED),
    };
    check_tlvs(header, tlvs)?;
    Ok(source)
}

/// The source in a block with addresses of `N` bytes, and the TLVs behind the block.
fn source<const N: usize>(block: &[u8]) -> Result<(NamedClient, &[u8]), InvalidHeader>
where
    IpAddr: From<[u8; N]>,
{
    let (address, rest) = block.split_first_chunk::<N>().ok_or(MALFORMED)?;
    let (_destination, rest) = rest.split_first_chunk::<N>().ok_or(MALFORMED)?;
    let (&[a, b, c, d], tlvs) = rest.split_first_chunk::<4>().ok_or(MALFORMED)?;
    let ports = [[a, b], [c, d]].map(u16::from_be_bytes);
    Ok((tcp(IpAddr::from(*address), ports), tlvs))
}

fn tcp(address: IpAddr, [source, destination]: [u16; 2]) -> NamedClient {
    let address = SocketAddr::new(address.to_canonical(), source);
    Some((PeerAddress::Tcp(address), Some(destination)))
}

/// Checks that the TLVs are whole, and the checksum if there is one.
fn check_tlvs(header: &[u8], mut tlvs: &[u8]) -> Result<(), InvalidHeader> {
    while let &[kind, high, low, ref rest @ ..] = tlvs {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let value = rest.get(..length).ok_or(MALFORMED)?;
        let at = header.len() - rest.len();
        if kind == CRC32C && value != crc32c(header, at..at + length).to_be_bytes() {
            return Err(OTHER_CHECKSUM);
        }
        tlvs = &rest[length..];
    }
    match tlvs {
        [] => Ok(()),
        _ => Err(MALFORMED),
    }
}

/// The CRC-32C (RFC 3720 section 12.1) of the header, with the bytes of the checksum as zeros.
/// Few proxies send it: bit by bit is fast enough for 4 KiB.
fn crc32c(header: &[u8], checksum: std::ops::Range<usize>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bytes = header.iter().enumerate();
    let bytes = bytes.map(|(at, byte)| if checksum.contains(&at) { 0 } else { *byte });
    !bytes.fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => crc >> 1 ^ POLYNOMIAL,
        })
    })
}

#[cfg(test)]
mod tests;

use proptest::prelude::*;

use super::*;

const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x30, 0x39, 1, 187];

/// A header of version 2.
fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).expect("a short block");
    let fixed = [&SIGNATURE[..], &[command, family], &length.to_be_bytes()];
    [&fixed.concat(), block].concat()
}

/// Reads as a connection does: only the bytes that are asked for. Returns the client, and how many
/// bytes were read.
fn read(bytes: &[u8]) -> Result<(NamedClient, usize), InvalidHeader> {
    let mut length = 0;
    loop {
        match missing(&bytes[..length])? {
            0 => return Ok((parse(&bytes[..length])?, length)),
            more => length += more,
        }
        assert!(length <= bytes.len(), "it asks for more than the header");
    }
}

fn client(bytes: &[u8]) -> Result<NamedClient, InvalidHeader> {
    let behind = [bytes, &[b'G'; MAX_V2]].concat();
    let (client, length) = read(&behind)?;
    assert_eq!(length, bytes.len(), "it reads the header only");
    Ok(client)
}

fn at(address: &str, port: u16) -> NamedClient {
    let address = address.parse().expect("an address");
    Some((PeerAddress::Tcp(address), Some(port)))
}

#[test]
fn version_1_names_the_client() {
    for (line, expected) in [
        (
            "TCP4 192.0.2.7 198.51.100.1 12345 443",
            at("192.0.2.7:12345", 443),
        ),
        ("TCP6 2001:db8::7 ::1 1 0", at("[2001:db8::7]:1", 0)),
        (
            "TCP6 ::ffff:192.0.2.7 ::1 65535 443",
            at("192.0.2.7:65535", 443),
        ),
        ("UNKNOWN", None),
        ("UNKNOWN ffff::1 ::1 1 2 and more", None),
    ] {
        let header = format!("PROXY {line}\r\n");
        assert_eq!(client(header.as_bytes()), Ok(expected), "{line}");
    }
}

#[test]
fn malformed_lines_are_refused() {
    for line in [
        "TCP4 192.0.2.7 198.51.100.1 12345",
        "TCP4 192.0.2.7 198.51.100.1 12345 443 1",
        "TCP4 192.0.2.7  198.51.100.1 12345 443",
        "TCP4 192.0.2.7 198.51.100.1 +1 443",
        "TCP4 192.0.2.7 198.51.100.1 65536 443",
        "TCP4 192.0.2.7 198.51.100.1  443",
        "TCP4 2001:db8::7 ::1 1 2",
        "TCP6 192.0.2.7 198.51.100.1 1 2",
        "UDP4 192.0.2.7 198.51.100.1 1 2",
        "tcp4 192.0.2.7 198.51.100.1 1 2",
        "UNKNOWN1",
        "TCP4 192.0.2.7\n198.51.100.1 1 2",
        "TCP4 \u{e9} 198.51.100.1 1 2",
    ] {
        let header = format!("PROXY {line}\r\n");
        assert_eq!(client(header.as_bytes()), Err(MALFORMED), "{line}");
    }
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_V1));
    assert_eq!(client(long.as_bytes()), Err(TOO_LONG));
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_V1 - 16));
    assert_eq!(client(longest.as_bytes()), Ok(None));
}

#[test]
fn version_2_names_the_client() {
    let v6 = |address: &str| {
        let address: Ipv6Addr = address.parse().expect("an address");
        [&address.octets()[..], &[0; 16], &[0, 80, 0, 81]].concat()
    };
    for (command, family, block, expected) in [
        (0x21, 0x11, V4.to_vec(), at("192.0.2.7:12345", 443)),
        (0x21, 0x21, v6("2001:db8::7"), at("[2001:db8::7]:80", 81)),
        (0x21, 0x21, v6("::ffff:192.0.2.7"), at("192.0.2.7:80", 81)),
        (0x21, 0x31, vec![0; 216], Some((PeerAddress::Unix, None))),
        (0x21, 0x00, vec![], None),
        (0x21, 0x00, vec![1, 2, 3], None),
        (0x20, 0x11, V4.to_vec(), None),
        (0x20, 0xff, vec![1], None),
        // A TLV of two bytes, and one of none.
        (
            0x21,
            0x11,
            [&V4[..], &[1, 0, 2, b'h', b'2', 4, 0, 0]].concat(),
            at("192.0.2.7:12345", 443),
        ),
    ] {
        assert_eq!(
            client(&v2(command, family, &block)),
            Ok(expected),
            "{family:x}"
        );
    }
}

#[test]
fn malformed_blocks_are_refused() {
    for (command, family, block) in [
        (0x22, 0x11, &V4[..]),
        (0x11, 0x11, &V4),
        (0x21, 0x12, &V4),
        (0x21, 0x41, &V4),
        (0x21, 0x01, &V4),
        (0x21, 0x11, &V4[..11]),
        (0x21, 0x21, &[0; 35]),
        (0x21, 0x31, &[0; 215]),
        (0x21, 0x11, &[&V4[..], &[1, 0]].concat()),
        (0x21, 0x11, &[&V4[..], &[1, 0, 2, 0]].concat()),
    ] {
        let parsed = client(&v2(command, family, block));
        assert_eq!(parsed, Err(MALFORMED), "{command:x} {family:x}");
    }
    let long = v2(0x20, 0, &[0; MAX_V2]);
    assert_eq!(client(&long), Err(TOO_LONG));
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "PROXY\tTCP4 1.1",
        "\r\n\r\n\0\r\nQUIT\r",
    ] {
        assert_eq!(client(text.as_bytes()), Err(MISSING), "{text}");
    }
}

#[test]
fn a_checksum_is_compared() {
    let zeros = [&V4[..], &[CRC32C, 0, 4, 0, 0, 0, 0]].concat();
    let mut header = v2(0x21, 0x11, &zeros);
    let at_end = header.len() - 4;
    let sum = crc32c(&header, at_end..at_end + 4);
    assert_eq!(client(&header), Err(OTHER_CHECKSUM));
    header[at_end..].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(client(&header), Ok(at("192.0.2.7:12345", 443)));
    let length = v2(0x21, 0x11, &[&V4[..], &[CRC32C, 0, 1, 0]].concat());
    assert_eq!(client(&length), Err(OTHER_CHECKSUM));
    // RFC 3720 section B.4.
    assert_eq!(crc32c(&[0; 32], 0..0), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32], 0..0), 0x62a8_ab43);
}

proptest! {
    #[test]
    fn no_bytes_panic_or_ask_for_too_much(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
        if let Ok(more) = missing(&bytes) {
            prop_assert!(bytes.len() + more <= MAX_V2.max(bytes.len()));
        }
        let block = v2(0x21, bytes.first().copied().unwrap_or_default(), &bytes);
        let _ = client(&block);
    }

    #[test]
    fn every_address_comes_through(source: SocketAddr, destination: SocketAddr, tlv: Vec<u8>) {
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let length = u16::try_from(tlv.len()).expect("short").to_be_bytes();
        let block = [
            &octets(source.ip())[..],
            &octets(destination.ip()),
            &source.port().to_be_bytes(),
            &destination.port().to_be_bytes(),
            &[5, length[0], length[1]],
            &tlv,
        ];
        let expected = SocketAddr::new(source.ip().to_canonical(), source.port());
        let expected = Some((PeerAddress::Tcp(expected), Some(destination.port())));
        prop_assert_eq!(client(&v2(0x21, 0x21, &block.concat())), Ok(expected));
        let word = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        if source.is_ipv4() == destination.is_ipv4() {
            let (from, to) = (source.ip(), destination.ip());
            let ports = (source.port(), destination.port());
            let line = format!("PROXY {word} {from} {to} {} {}\r\n", ports.0, ports.1);
            prop_assert_eq!(client(line.as_bytes()), Ok(expected));
        }
    }
}

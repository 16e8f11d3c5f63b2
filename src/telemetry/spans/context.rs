//! The Traceparent field (W3C Trace Context, section 3.2): which trace a request belongs to.

use std::fmt;

use aws_lc_rs::rand;

/// The length of a field of version 00.
const LENGTH: usize = 55;

/// The identity of a trace; never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

/// The identity of a span; never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

/// The trace of a request, as its caller or this proxy says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span of the sender.
    pub span: SpanId,
    /// The sender records its spans.
    pub is_sampled: bool,
}

impl TraceContext {
    /// The context of a field; `None` if it is not valid.
    pub fn parse(field: &[u8]) -> Option<Self> {
        let (known, later) = field.split_at_checked(LENGTH)?;
        let is_version_0 = known.starts_with(b"00-");
        let has_dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        let ends_well = later.is_empty() || (!is_version_0 && later.starts_with(b"-"));
        if !has_dashes || !ends_well || known.starts_with(b"ff") {
            return None;
        }
        let [_version] = hex(&known[..2])?;
        let (trace, span) = (hex(&known[3..35])?, hex(&known[36..52])?);
        let [flags] = hex(&known[53..])?;
        let is_valid = trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            is_sampled: flags & 1 == 1,
        })
    }

    /// The value of a field of version 00.
    pub fn to_field(self) -> String {
        let Self { trace, span, .. } = self;
        let flags = u8::from(self.is_sampled);
        format!("00-{trace}-{span}-{flags:02x}")
    }
}

impl TraceId {
    /// A new trace.
    pub fn random() -> Self {
        Self(random())
    }
}

impl SpanId {
    /// A new span.
    pub fn random() -> Self {
        Self(random())
    }
}

/// Random bytes that are not all 0.
fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    // Without randomness of the system the identity is a constant: spans are no secrets.
    let _ = rand::fill(&mut bytes);
    if bytes == [0; LENGTH] {
        bytes[0] = 1;
    }
    bytes
}

/// True for a random `percent` of calls.
pub fn is_chosen(percent: u32) -> bool {
    match percent {
        0 => false,
        100.. => true,
        percent => {
            let drawn = (u64::from(u32::from_be_bytes(random())) * 100) >> 32;
            drawn < u64::from(percent)
        }
    }
}

/// The bytes that lower-case hexadecimal digits say.
fn hex<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (value(pair[0])? << 4) | value(pair[1])?;
    }
    Some(bytes)
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_valid_field_has_a_trace_a_span_and_a_flag() {
        let of = |field: &str| TraceContext::parse(field.as_bytes());
        let with = |before: &str, after: &str| format!("{before}{ID}{after}");
        let plain = with("00-", "-00f067aa0ba902b7-01");
        let context = of(&plain).expect("a context");
        assert_eq!(context.trace.to_string(), ID);
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled);
        assert_eq!(context.to_field(), plain);
        let later = of(&with("cc-", "-00f067aa0ba902b7-02-what")).expect("a context");
        assert!(!later.is_sampled);
        assert_eq!(later.to_field(), with("00-", "-00f067aa0ba902b7-00"));
        for wrong in [
            with("00-", "-00f067aa0ba902b7-01-what"),
            with("ff-", "-00f067aa0ba902b7-01"),
            with("0g-", "-00f067aa0ba902b7-01"),
            with("00-", "-00f067aa0ba902b7-0"),
            with("00_", "-00f067aa0ba902b7-01"),
            with("00-", "-00F067AA0BA902B7-01"),
            with("00-", "-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            String::new(),
        ] {
            assert_eq!(of(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_percentage_of_requests_is_chosen() {
        assert!((0..1_000).all(|_| is_chosen(100) && !is_chosen(0)));
        // Ten standard deviations.
        let chosen = (0..10_000).filter(|_| is_chosen(20)).count();
        assert!((1_600..=2_400).contains(&chosen), "{chosen}");
    }
}

//! Names of buckets in Redis: `PREFIX{KEY}POLICY:ALGORITHM`.
//!
//! The braces make the key alone decide the cluster slot: one call charges all policies with the
//! same key. The algorithm separates nodes that differ in it, since neither can read the other's
//! buckets.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::script_call::micros;
use crate::limiter::algorithms::OldestPart;
use crate::limiter::{Algorithm, Fingerprint, KeyParts, Secret, WideKeyHasher};

/// The naming of one store's buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The prefix of all names.
    pub prefix: Arc<str>,
    /// The form of keys in names.
    pub keys: KeyFormat,
}

/// The form of keys in names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// 128 bits of a keyed hash. All machines that share the buckets have the same secret.
    Hashed(Secret),
    /// Plain text. Keys longer than [`MAX_READABLE_KEY`] bytes are hashed under a public key.
    Readable,
}

/// The longest readable key, in bytes.
pub const MAX_READABLE_KEY: usize = 200;

/// The part of a name that identifies a policy, or one of its overflow buckets, on machines with any
/// window: name and algorithm.
pub fn policy_label(policy: &str, algorithm: &Algorithm) -> String {
    [policy, ":", algorithm.kind()].concat()
}

/// The part of a name that identifies the buckets of a policy, or one of its overflow buckets. All
/// machines whose values mean the same to each other have the same: it has all parameters of the
/// algorithm except the quota's limit, the burst or capacity, and how many units a refill adds.
pub fn bucket_label(policy: &str, algorithm: &Algorithm) -> Box<str> {
    let label = policy_label(policy, algorithm);
    let window = algorithm.window().map(|window| span(micros(window)));
    match (algorithm, window) {
        (Algorithm::IntervalRefill(bucket), _) => {
            format!("{label}:{}/refill", span(bucket.refill().1))
        }
        (Algorithm::SlidingWindow(sliding), Some(window)) => {
            format!("{label}:{window}{}", weight(sliding.oldest()))
        }
        (Algorithm::SlidingCounters(counters), Some(window)) => {
            let (parts, oldest) = counters.parts();
            format!("{label}:{window}/{parts}{}", weight(oldest))
        }
        (_, Some(window)) => format!("{label}:{window}"),
        (_, None) => label,
    }
    .into()
}

/// A weight of the oldest part that is not the usual one.
fn weight(oldest: OldestPart) -> String {
    match oldest {
        OldestPart::Weighted => String::new(),
        other => format!("/{}", <&str>::from(other)),
    }
}

/// A number of microseconds in the largest unit of which it is a whole number.
fn span(micros: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    let fitting = UNITS
        .into_iter()
        .find(|(unit, _)| micros.is_multiple_of(*unit));
    let (unit, name) = fitting.unwrap_or((1, "us"));
    format!("{}{name}", micros / unit)
}

/// Builds names from the parts of a key, in order.
#[derive(Debug)]
pub struct NameBuilder<'a> {
    prefix: &'a str,
    hasher: WideKeyHasher,
    /// The readable key, while it is short enough.
    readable: Option<String>,
}

impl Naming {
    /// Starts a name.
    pub fn name_builder(&self) -> NameBuilder<'_> {
        NameBuilder {
            prefix: &self.prefix,
            hasher: self.secret().wide_hasher(),
            readable: (self.keys == KeyFormat::Readable).then(String::new),
        }
    }

    /// The secret of hashed keys, equal on all machines that share the buckets.
    pub fn secret(&self) -> Secret {
        match &self.keys {
            KeyFormat::Hashed(secret) => *secret,
            KeyFormat::Readable => Secret::from_key([0, 0]),
        }
    }

    /// The fingerprint of a key whose parts `write` writes, equal on all machines that share
    /// buckets; `None` without a key.
    pub fn key(&self, write: impl FnOnce(&mut WideKeyHasher) -> bool) -> Option<Fingerprint> {
        let mut hasher = self.secret().wide_hasher();
        write(&mut hasher).then(|| Fingerprint::from_bits(hasher.finish() as u64))
    }
}

impl KeyParts for NameBuilder<'_> {
    fn part(&mut self, kind: u8, value: &[u8]) {
        self.hasher.part(kind, value);
        let Some(text) = &mut self.readable else {
            return;
        };
        if !text.is_empty() {
            text.push(',');
        }
        write_part(kind, value, text);
        if text.len() > MAX_READABLE_KEY {
            self.readable = None;
        }
    }
}

impl NameBuilder<'_> {
    /// The fingerprint of the parts so far, equal on all machines that share buckets.
    pub fn key(&self) -> Fingerprint {
        Fingerprint::from_bits(self.hasher.clone().finish() as u64)
    }

    /// The bucket's name: this label, and the key of the parts so far.
    pub fn name(&self, label: &str) -> Vec<u8> {
        let hashed;
        let text = match &self.readable {
            // Empty braces would not count as a hash tag.
            Some(text) if !text.is_empty() => text,
            _ => {
                let key = self.hasher.clone().finish();
                hashed = URL_SAFE_NO_PAD.encode(key.to_be_bytes());
                &hashed
            }
        };
        [self.prefix, "{", text, "}", label].concat().into_bytes()
    }
}

/// Writes a part as readable text. No two parts of one kind have the same text. Percent signs
/// escape unprintable and reserved bytes; a number and a colon precede a part that stands in for
/// another.
fn write_part(kind: u8, value: &[u8], text: &mut String) {
    use std::fmt::Write;
    const ADDRESS: u8 = 1;
    const STAND_IN: u8 = 128;
    const GROWS: &str = "a string grows";
    if !(1..STAND_IN).contains(&kind) {
        write!(text, "{kind}:").expect(GROWS);
    }
    let address = match (kind % STAND_IN, value.len()) {
        (ADDRESS, 4) => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        (ADDRESS, _) => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    };
    if let Some(address) = address {
        return write!(text, "{address}").expect(GROWS);
    }
    for &byte in value {
        match byte {
            b'{' | b'}' | b',' | b'%' | b':' => write!(text, "%{byte:02X}").expect(GROWS),
            b'!'..=b'~' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").expect(GROWS),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limiter::algorithms::Concurrency;
    use crate::limiter::bucket::Grant;
    use crate::store::redis::client::slot;

    fn name(naming: &Naming, policy: &str, parts: &[(u8, &[u8])]) -> Vec<u8> {
        let mut builder = naming.name_builder();
        for (kind, value) in parts {
            builder.part(*kind, value);
        }
        builder.name(policy)
    }

    fn text(parts: &[(u8, &[u8])]) -> String {
        String::from_utf8(name(&readable(), "p", parts)).expect("names are text")
    }

    fn readable() -> Naming {
        Naming {
            prefix: "sg:".into(),
            keys: KeyFormat::Readable,
        }
    }

    fn hashed(key: [u64; 2]) -> Naming {
        Naming {
            keys: KeyFormat::Hashed(Secret::from_key(key)),
            ..readable()
        }
    }

    #[test]
    fn readable_names_show_the_key() {
        assert_eq!(text(&[(2, b"alice")]), "sg:{alice}p");
        assert_eq!(
            text(&[(1, &[10, 0, 0, 1]), (2, b"a b")]),
            "sg:{10.0.0.1,a%20b}p"
        );
        assert_eq!(text(&[(2, b"a,b{c}%")]), "sg:{a%2Cb%7Bc%7D%25}p");
        let v6 = "2001:db8::"
            .parse::<std::net::Ipv6Addr>()
            .expect("an address");
        assert_eq!(text(&[(1, &v6.octets())]), "sg:{2001:db8::}p");
        assert_eq!(text(&[(129, &[1, 2, 3, 4])]), "sg:{129:1.2.3.4}p");
        assert_eq!(text(&[(0, b"")]), "sg:{0:}p");
    }

    #[test]
    fn a_label_has_all_that_values_depend_on_but_no_quota() {
        let numbers = [
            ([1, 40, 60_000_000, 40, 0], "p:gcra:1m"),
            ([1, 30, 60_000_000, 7, 0], "p:gcra:1m"),
            ([1, 30, 60_000_001, 7, 0], "p:gcra:60000001us"),
            ([2, 30, 60_000_000, 7, 0], "p:token_bucket:1m"),
            ([3, 30, 60_000_000, 7, 0], "p:token_bucket:1m/refill"),
            ([4, 30, 172_800_000_000, 0, 0], "p:fixed_window:2d"),
            ([5, 30, 1_500_000, 0, 0], "p:sliding_window:1500ms"),
            ([5, 30, 7_200_000_000, 1, 0], "p:sliding_window:2h/whole"),
            ([6, 30, 7_200_000_000, 60, 0], "p:sliding_window:2h/60"),
            (
                [6, 30, 7_200_000_000, 60, 2],
                "p:sliding_window:2h/60/ignored",
            ),
            ([7, 30, 1_000_000, 0, 0], "p:sliding_log:1s"),
        ];
        for (numbers, label) in numbers {
            let algorithm = Algorithm::decode(numbers).expect("an algorithm");
            assert_eq!(&*bucket_label("p", &algorithm), label);
        }
        let three = Concurrency::new(3, std::time::Duration::from_secs(1));
        let label = bucket_label("p", &Algorithm::Concurrency(three));
        assert_eq!(&*label, "p:concurrency");
        assert_eq!(
            &*bucket_label("p/granted", &Algorithm::Grant(Grant)),
            "p/granted:grant"
        );
    }

    #[test]
    fn a_name_is_never_long_and_its_braces_are_never_empty() {
        let long = text(&[(2, &[b'x'; 10_000])]);
        assert_eq!(long.len(), "sg:{}p".len() + 22);
        assert_eq!(text(&[(10, b"")]).len(), long.len());
    }

    #[test]
    fn hashed_names_depend_on_the_secret_and_equal_keys_share_a_slot() {
        let parts: [(u8, &[u8]); 1] = [(2, b"alice")];
        let one = name(&hashed([1, 2]), "p", &parts);
        assert_eq!(one, name(&hashed([1, 2]), "p", &parts));
        assert_ne!(one, name(&hashed([1, 3]), "p", &parts));
        assert!(!one.windows(5).any(|piece| piece == b"alice"));
        let other = name(&hashed([1, 2]), "q", &parts);
        assert_ne!(one, other);
        assert_eq!(slot(&one), slot(&other));
    }

    proptest! {
        #[test]
        fn no_two_keys_of_one_kind_have_the_same_text(
            left in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..6), 1..4),
            right in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..6), 1..4),
        ) {
            let named = |values: &[Vec<u8>]| {
                let parts: Vec<_> = values.iter().map(|value| (2, value.as_slice())).collect();
                text(&parts)
            };
            prop_assert_eq!(named(&left) == named(&right), left == right);
        }
    }
}

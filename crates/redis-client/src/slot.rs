//! The slots of a cluster:
//! <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.

/// 0 to 16383.
pub(super) type Slot = u16;

pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: that of the text between its first `{` and the next `}`, or of the whole key
/// if that text is empty.
pub fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else {
        return key;
    };
    let inner = &key[open + 1..];
    match inner.iter().position(|byte| *byte == b'}') {
        Some(length @ 1..) => &inner[..length],
        _ => key,
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, from zero, nothing reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| {
            match crc & 0x8000 {
                0 => crc << 1,
                _ => crc << 1 ^ 0x1021,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As CLUSTER KEYSLOT answers.
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % SLOTS);
    }
}

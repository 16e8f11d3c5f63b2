//! The memory for keys that are known beside their buckets: strikes and bans, remembered refusals,
//! reports to other machines.

/// The smallest room of a map, in bytes, unless that is more than a quarter of the tables' memory.
const LEAST_ROOM: u64 = 8 << 20;
/// The room of a map for one key, which always fits.
const ROOM_OF_ONE: usize = 32 << 10;

/// The memory of each map of keys beside tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackingBudget {
    each: usize,
}

impl TrackingBudget {
    /// Memory for `maps` maps beside tables of `max_size` bytes: together a quarter of that, and at
    /// least the smallest room for each.
    pub fn new(max_size: u64, maps: usize) -> Self {
        let all = max_size / 4;
        let share = (all / maps.max(1) as u64).max(LEAST_ROOM.min(all));
        Self {
            each: usize::try_from(share).unwrap_or(usize::MAX),
        }
    }

    /// The bytes of a map beside a table of `keys` keys.
    pub const fn bytes(self, keys: usize) -> usize {
        match keys {
            1 => ROOM_OF_ONE,
            _ => self.each,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_share_a_quarter_and_have_some_room_each() {
        let each = |max_size, maps| TrackingBudget::new(max_size, maps).bytes(1024);
        assert_eq!(each(64 << 20, 1), 16 << 20);
        assert_eq!(each(64 << 20, 64), 8 << 20);
        assert_eq!(each(1 << 20, 3), 256 << 10);
        assert_eq!(TrackingBudget::new(64 << 20, 1).bytes(1), 32 << 10);
    }
}

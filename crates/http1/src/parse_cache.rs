//! A cache of parsed texts.

/// Parsed values of some texts.
///
/// Each place holds one text, and a new text replaces it. Texts that alternate in a place are
/// parsed each time.
#[derive(Debug)]
pub struct ParseCache<T, const PLACES: usize>([Option<(Box<[u8]>, T)>; PLACES]);

impl<T: Clone, const PLACES: usize> ParseCache<T, PLACES> {
    /// An empty cache.
    pub const EMPTY: Self = ParseCache([const { None }; PLACES]);

    /// Returns the value of `text`, parsed with `read` unless cached. `place` may be any number,
    /// and should differ between texts. Callers bound the length of texts.
    ///
    /// # Errors
    /// Errors of `read`, which are not cached.
    pub fn read<E>(
        &mut self,
        text: &[u8],
        place: usize,
        read: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, E> {
        let known = &mut self.0[place % PLACES];
        match known {
            Some((known, is)) if **known == *text => Ok(is.clone()),
            _ => {
                let is = read(text)?;
                *known = Some((text.into(), is.clone()));
                Ok(is)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cached_values_equal_parsed_ones(
            texts in prop::collection::vec(("[a-c]{0,3}", 0..3_usize), 0..200),
        ) {
            let mut remembered = ParseCache::<usize, 2>::EMPTY;
            for (text, place) in texts {
                let read = |text: &[u8]| (!text.is_empty()).then_some(text.len()).ok_or(());
                let (text, fresh) = (text.as_bytes(), read(text.as_bytes()));
                prop_assert_eq!(remembered.read(text, place, read), fresh);
                // The second call does not parse.
                let again = remembered.read(text, place, |_| Err(()));
                prop_assert_eq!(again, fresh);
            }
        }
    }
}

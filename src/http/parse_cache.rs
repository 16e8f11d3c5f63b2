//! What texts that come again and again were read as, so that they need not be read again.

/// Some texts, each with what it was read as.
///
/// Each has one place: a text takes it from the one that had it before. Texts that take turns in one are read as
/// if nothing were remembered.
#[derive(Debug)]
pub(super) struct ParseCache<T, const PLACES: usize>([Option<(Box<[u8]>, T)>; PLACES]);

impl<T: Clone, const PLACES: usize> ParseCache<T, PLACES> {
    /// Nothing yet.
    pub(super) const fn new() -> Self {
        ParseCache([const { None }; PLACES])
    }

    /// What `text` is read as. Its place may be any number, and is best another for each text; who remembers bounds
    /// how long texts may be.
    ///
    /// # Errors
    /// Those of `read`, which are not remembered.
    pub(super) fn read<E>(
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
        fn what_is_read_is_the_same_whatever_is_remembered(
            texts in prop::collection::vec(("[a-c]{0,3}", 0..3_usize), 0..200),
        ) {
            let mut remembered = ParseCache::<usize, 2>::new();
            for (text, place) in texts {
                let read = |text: &[u8]| (!text.is_empty()).then_some(text.len()).ok_or(());
                let (text, fresh) = (text.as_bytes(), read(text.as_bytes()));
                prop_assert_eq!(remembered.read(text, place, read), fresh);
                // The second time it is not read.
                let again = remembered.read(text, place, |_| Err(()));
                prop_assert_eq!(again, fresh);
            }
        }
    }
}

//! The header fields of a message, in the order in which they came.
//!
//! Not [`http::HeaderMap`]: that hashes each name when a field is added and again when one is looked for, and keeps
//! two tables. A head has some ten fields, in which a list finds a name sooner (docs/performance.md).

use std::borrow::Borrow;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header fields. Several may have one name: their values are a list (RFC 9110 section 5.2).
///
/// Whatever looks for a name looks at all fields, so that their number has to be bounded where they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Headers {
    /// No fields.
    pub const fn new() -> Self {
        Headers { fields: Vec::new() }
    }

    /// No fields yet, with room for some.
    pub fn with_capacity(fields: usize) -> Self {
        Headers {
            fields: Vec::with_capacity(fields),
        }
    }

    /// Makes room for more fields.
    pub fn reserve(&mut self, more: usize) {
        self.fields.reserve(more);
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.fields.iter().map(|(name, value)| (name, value))
    }

    /// The names of the fields in their order, some of them several times.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().map(|(name, _)| name)
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: impl Borrow<HeaderName>) -> Option<&HeaderValue> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field, _)| field == name.borrow());
        found.map(|(_, value)| value)
    }

    /// The values of all fields of this name.
    pub fn get_all<'a>(
        &'a self,
        name: impl Borrow<HeaderName> + 'a,
    ) -> impl DoubleEndedIterator<Item = &'a HeaderValue> {
        let fields = self.fields.iter();
        fields.filter_map(move |(field, value)| (field == name.borrow()).then_some(value))
    }

    /// Whether there is a field of this name.
    pub fn contains(&self, name: impl Borrow<HeaderName>) -> bool {
        self.names().any(|field| field == name.borrow())
    }

    /// Adds a field behind the others.
    pub fn append(&mut self, name: impl Into<HeaderName>, value: HeaderValue) {
        self.fields.push((name.into(), value));
    }

    /// Adds a field in the place of all others of its name.
    pub fn insert(&mut self, name: impl Into<HeaderName>, value: HeaderValue) {
        let name = name.into();
        let mut value = Some(value);
        self.fields.retain_mut(|(field, old)| {
            *field != name
                || value.take().is_some_and(|value| {
                    *old = value;
                    true
                })
        });
        if let Some(value) = value {
            self.append(name, value);
        }
    }

    /// Adds a field unless there is one of its name.
    pub fn insert_missing(&mut self, name: impl Into<HeaderName>, value: HeaderValue) {
        let name = name.into();
        if !self.contains(&name) {
            self.append(name, value);
        }
    }

    /// Leaves out every field of this name.
    pub fn remove(&mut self, name: impl Borrow<HeaderName>) {
        self.retain(|field| field != name.borrow());
    }

    /// Leaves out the fields whose names are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&HeaderName) -> bool) {
        self.fields.retain(|(name, _)| keep(name));
    }

    /// Leaves out all fields.
    pub fn clear(&mut self) {
        self.fields.clear();
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a (HeaderName, HeaderValue);
    type IntoIter = std::slice::Iter<'a, (HeaderName, HeaderValue)>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields.iter()
    }
}

impl Extend<(HeaderName, HeaderValue)> for Headers {
    fn extend<T: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, fields: T) {
        self.fields.extend(fields);
    }
}

impl FromIterator<(HeaderName, HeaderValue)> for Headers {
    fn from_iter<T: IntoIterator<Item = (HeaderName, HeaderValue)>>(fields: T) -> Self {
        Headers {
            fields: fields.into_iter().collect(),
        }
    }
}

impl From<HeaderMap> for Headers {
    fn from(map: HeaderMap) -> Self {
        let mut headers = Headers::with_capacity(map.len());
        let mut last = None;
        for (name, value) in map {
            // Only the first of several fields has the name with it.
            last = name.or(last);
            headers.extend(last.clone().map(|name| (name, value)));
        }
        headers
    }
}

impl From<Headers> for HeaderMap {
    fn from(headers: Headers) -> Self {
        let mut map = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers.fields {
            map.append(name, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, HOST, VIA};
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).expect("a value")
    }

    fn text(headers: &Headers) -> Vec<(&str, &[u8])> {
        let fields = headers.iter();
        fields
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect()
    }

    #[test]
    fn fields_stay_in_their_order() {
        let fields = [(VIA, value("1")), (HOST, value("a")), (VIA, value("2"))];
        let mut headers = Headers::from_iter(fields);
        assert_eq!(
            text(&headers),
            [("via", &b"1"[..]), ("host", b"a"), ("via", b"2")]
        );
        assert_eq!(headers.get(VIA), Some(&value("1")));
        assert_eq!(headers.get_all(VIA).rev().count(), 2);
        headers.insert(VIA, value("3"));
        headers.insert_missing(HOST, value("b"));
        headers.insert_missing(ACCEPT, value("c"));
        assert_eq!(
            text(&headers),
            [("via", &b"3"[..]), ("host", b"a"), ("accept", b"c")]
        );
        headers.remove(&HOST);
        assert_eq!((headers.contains(HOST), headers.len()), (false, 2));
    }

    /// What is done to header fields.
    #[derive(Clone, Debug)]
    enum Step {
        Append(u8, u16),
        Insert(u8, u16),
        InsertMissing(u8, u16),
        Remove(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::Append(name, value)),
            (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::Insert(name, value)),
            (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::InsertMissing(name, value)),
            (0..5_u8).prop_map(Step::Remove),
        ];
        proptest::collection::vec(step, 0..40)
    }

    proptest! {
        #[test]
        fn every_name_has_the_values_that_a_map_would_have(steps in steps()) {
            let names = ["x-0", "x-1", "host", "via", "x-4"].map(HeaderName::from_static);
            let name = |place: u8| names[usize::from(place)].clone();
            let (mut list, mut map) = (Headers::new(), HeaderMap::new());
            for step in steps {
                match step {
                    Step::Append(place, new) => {
                        list.append(name(place), new.into());
                        map.append(name(place), new.into());
                    }
                    Step::Insert(place, new) => {
                        list.insert(name(place), new.into());
                        map.insert(name(place), new.into());
                    }
                    Step::InsertMissing(place, new) => {
                        list.insert_missing(name(place), new.into());
                        map.entry(name(place)).or_insert(new.into());
                    }
                    Step::Remove(place) => {
                        list.remove(name(place));
                        map.remove(name(place));
                    }
                }
                for name in &names {
                    let values: Vec<_> = list.get_all(name).collect();
                    prop_assert_eq!(&values, &map.get_all(name).iter().collect::<Vec<_>>());
                    prop_assert_eq!(list.get(name), map.get(name));
                    prop_assert_eq!(list.contains(name), map.contains_key(name));
                }
                prop_assert_eq!(list.len(), map.len());
            }
            prop_assert_eq!(&HeaderMap::from(list.clone()), &map);
            prop_assert_eq!(HeaderMap::from(Headers::from(map.clone())), map);
        }
    }
}

//! The table of keys and clients: immutable, and small for a million of them.
//!
//! Of a key it has 128 bits of its SHA-256, in open addressing: 30 bytes a key. A client has its
//! name, and 4 bytes for each column, whose values are kept once.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use siphasher::sip128::SipHasher13;

use super::KeyDigest;
use super::digest::{NOBODY, RecentKeys, keyed_hasher};
use crate::rules::KeyPart;

/// Keys with their clients.
#[derive(derive_more::Debug)]
#[debug("ClientTable")]
pub struct ClientTable {
    entries: Box<[Entry]>,
    names: Texts,
    columns: Vec<Column>,
    recent: RecentKeys,
}

/// A key, and the place of its client; that of a free entry is `NOBODY`.
#[derive(Clone, Copy)]
struct Entry {
    digest: [u32; 4],
    client: u32,
}

/// Texts, one behind the other.
#[derive(Default)]
struct Texts {
    text: String,
    ends: Vec<u32>,
}

/// A column, whose values are each kept once.
struct Column {
    name: Box<str>,
    /// The place of each client's value.
    values: Vec<u32>,
    distinct: Texts,
}

/// The place of a row, for errors: the number of the file, and the line.
pub type Place = (u16, u32);

/// The reason why a row can't be in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowError {
    /// Another row has the same key.
    SameKey {
        /// The place of that row.
        first: Place,
    },
    /// The client has another value in this column elsewhere.
    Differs {
        /// The column.
        column: Box<str>,
        /// The place where.
        first: Place,
    },
    /// More than 4 GiB of texts, or 4 billion rows.
    TooMany,
}

/// The places of names or values.
type Places<K> = HashMap<K, u32, RandomState>;

/// Collects the rows of a table.
#[derive(derive_more::Debug)]
#[debug("TableBuilder")]
pub struct TableBuilder {
    keys: Vec<(Entry, Place)>,
    names: Texts,
    places: Vec<Place>,
    columns: Vec<(Column, Places<Box<str>>)>,
    /// The places of clients by hashes of their names.
    by_name: Places<u128>,
    hasher: SipHasher13,
}

impl Texts {
    fn get(&self, place: u32) -> &str {
        let place = place as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[place] as usize]
    }

    /// Adds a text, and returns its place.
    fn push(&mut self, text: &str) -> Result<u32, RowError> {
        self.text.push_str(text);
        let end = u32::try_from(self.text.len()).map_err(|_| RowError::TooMany)?;
        self.ends.push(end);
        Ok((self.ends.len() - 1) as u32)
    }
}

impl TableBuilder {
    /// Begins a table with these columns, besides the name.
    pub fn new<'n>(columns: impl Iterator<Item = &'n str>) -> Self {
        let columns = columns.map(|name| {
            let column = Column {
                name: name.into(),
                values: Vec::new(),
                distinct: Texts::default(),
            };
            (column, HashMap::default())
        });
        Self {
            keys: Vec::new(),
            names: Texts::default(),
            places: Vec::new(),
            columns: columns.collect(),
            by_name: HashMap::default(),
            hasher: keyed_hasher(),
        }
    }

    /// Adds a key of a client, with a value for each column. A client may have several keys.
    ///
    /// # Errors
    /// The client has other values in an earlier row.
    pub fn add<'v>(
        &mut self,
        key: KeyDigest,
        name: &str,
        values: impl Iterator<Item = &'v str>,
        place: Place,
    ) -> Result<(), RowError> {
        let name_hash = self.hasher.hash(name.as_bytes()).as_u128();
        let known = self.by_name.get(&name_hash).copied();
        for (value, (column, known_values)) in values.zip(&mut self.columns) {
            match (known, known_values.get(value)) {
                (Some(client), value) => {
                    if value != Some(&column.values[client as usize]) {
                        let column = column.name.clone();
                        let first = self.places[client as usize];
                        return Err(RowError::Differs { column, first });
                    }
                }
                (None, Some(value)) => column.values.push(*value),
                (None, None) => {
                    let value_place = column.distinct.push(value)?;
                    known_values.insert(value.into(), value_place);
                    column.values.push(value_place);
                }
            }
        }
        let client = match known {
            Some(client) => client,
            None => {
                let client = self.names.push(name)?;
                self.by_name.insert(name_hash, client);
                self.places.push(place);
                client
            }
        };
        let digest = key.half();
        self.keys.push((Entry { digest, client }, place));
        Ok(())
    }

    /// Makes the table.
    ///
    /// # Errors
    /// Two rows have the same key: the place of the second, and the error.
    pub fn build(self) -> Result<ClientTable, (Place, RowError)> {
        const FREE: Entry = Entry {
            digest: [0; 4],
            client: NOBODY,
        };
        let count = self.keys.len();
        let mut entries = vec![FREE; count + count / 2 + 1].into_boxed_slice();
        for (number, (entry, place)) in (0..).zip(&self.keys) {
            let at = probe(&entries, entry.digest);
            if entries[at].client != NOBODY {
                let (_, first) = self.keys[entries[at].client as usize];
                return Err((*place, RowError::SameKey { first }));
            }
            let digest = entry.digest;
            entries[at] = Entry {
                digest,
                client: number,
            };
        }
        for entry in entries.iter_mut().filter(|one| one.client != NOBODY) {
            entry.client = self.keys[entry.client as usize].0.client;
        }
        let mut columns: Vec<_> = self.columns.into_iter().map(|(column, _)| column).collect();
        let mut names = self.names;
        for texts in columns
            .iter_mut()
            .map(|column| &mut column.distinct)
            .chain([&mut names])
        {
            texts.text.shrink_to_fit();
            texts.ends.shrink_to_fit();
        }
        columns
            .iter_mut()
            .for_each(|column| column.values.shrink_to_fit());
        Ok(ClientTable {
            entries,
            names,
            columns,
            recent: RecentKeys::new(count),
        })
    }
}

/// The entry with this digest, or the free one that ends the search for it. A third are free.
fn probe(entries: &[Entry], digest: [u32; 4]) -> usize {
    let high = u64::from(digest[0]) << 32 | u64::from(digest[1]);
    let mut at = ((u128::from(high) * entries.len() as u128) >> 64) as usize;
    while entries[at].client != NOBODY && entries[at].digest != digest {
        at += 1;
        if at == entries.len() {
            at = 0;
        }
    }
    at
}

impl ClientTable {
    /// The client with this key.
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let client = self.recent.get(key, || {
            let digest = KeyDigest::of(key).half();
            self.entries[probe(&self.entries, digest)].client
        });
        (client != NOBODY).then_some(client)
    }

    /// The name of a client, or its value in a column, which may be empty; `None` for another part or
    /// an unknown column.
    pub fn value(&self, client: u32, part: &KeyPart) -> Option<&str> {
        match part {
            KeyPart::Client => Some(self.names.get(client)),
            KeyPart::ClientColumn(name) => {
                let mut columns = self.columns.iter();
                let column = columns.find(|column| *column.name == **name)?;
                Some(column.distinct.get(column.values[client as usize]))
            }
            _ => None,
        }
    }

    /// The client with this name. Compares all names, which takes milliseconds for a million.
    pub fn by_name(&self, name: &str) -> Option<u32> {
        let mut clients = 0..self.clients() as u32;
        clients.find(|client| self.names.get(*client) == name)
    }

    /// The columns of a client, each as a part of a key, and its values.
    pub fn values(&self, client: u32) -> impl Iterator<Item = (KeyPart, Box<str>)> {
        self.columns.iter().map(move |column| {
            let value = column.distinct.get(column.values[client as usize]);
            (KeyPart::ClientColumn(column.name.to_string()), value.into())
        })
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.names.ends.len()
    }

    /// The place of the column with this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| *column.name == *name)
    }

    /// The distinct values of the column at this place, also the empty one of clients without a value.
    pub fn distinct(&self, column: usize) -> impl Iterator<Item = &str> {
        let values = &self.columns[column].distinct;
        (0..values.ends.len() as u32).map(|place| values.get(place))
    }

    /// The place of a client's value among the [distinct](Self::distinct) ones of the column.
    pub fn distinct_place(&self, client: u32, column: usize) -> usize {
        self.columns[column].values[client as usize] as usize
    }
}

#[cfg(test)]
mod memory {
    use super::{ClientTable, Texts};

    impl ClientTable {
        /// The memory of the table, in bytes.
        pub(in crate::rules::client) fn bytes(&self) -> usize {
            let texts = |texts: &Texts| texts.text.capacity() + 4 * texts.ends.capacity();
            let columns = self.columns.iter();
            let columns = columns.map(|one| 4 * one.values.capacity() + texts(&one.distinct));
            size_of_val(&*self.entries) + texts(&self.names) + columns.sum::<usize>()
        }
    }
}

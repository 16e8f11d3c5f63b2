//! A scan of JSON documents that come in pieces, for the values at some pointers, in constant
//! memory.
//!
//! Published parsers keep each string as a whole (actson, picojson) or wait for one
//! (json-event-parser, struson); a string of a response may be megabytes. This scan keeps open
//! containers on the pointers' paths, and one key, number or short text. It checks no more of the
//! syntax than it needs to find the values.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::json_pointer::JsonPointer;

/// The largest document that is read, in bytes.
pub const LARGEST_DOCUMENT: u64 = 256 * 1024 * 1024;

/// The longest number that is kept, in bytes.
const LONGEST_NUMBER: usize = 64;

/// The longest text that is kept, in bytes as it is written.
const LONGEST_TEXT: usize = 128;

/// The reference token for any item of an array. In RFC 6901 it names an item that never exists.
const ANY_ITEM: &str = "-";

/// A set of the scan's pointers, a bit for each.
type Pointers = u32;

/// A search for the values at up to 32 pointers. Of several values at one, in one document or one
/// after the other, the last counts.
#[derive(Debug)]
pub struct JsonScan {
    pointers: Arc<[JsonPointer]>,
    state: ScanState,
    /// How many containers are open.
    depth: u64,
    /// The open containers from the root on that lie on the path of a pointer.
    path: SmallVec<[Container; 4]>,
    /// The key, number or text that is being read, if it matters.
    text: SmallVec<[u8; 32]>,
    /// The values by pointer.
    found: SmallVec<[Option<JsonValue>; 1]>,
    bytes: u64,
}

/// A value as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    /// A number, as it is written.
    Number(Box<str>),
    /// A text of at most 128 bytes, without its escapes.
    Text(Box<str>),
    /// Another value than these or `null`.
    Other,
}

/// The input is no JSON, not a whole document, or larger than [`LARGEST_DOCUMENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no JSON document, not all of one, or one of more than 256 MiB")]
pub struct InvalidJson;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    /// Between tokens.
    Between,
    /// Within a string.
    String { role: Role, is_escaped: bool },
    /// Within a number or a literal, the value at these pointers.
    Scalar { at: Pointers },
    /// The input is no JSON.
    Broken,
}

/// The role of a string in the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The name of a member of an object on the path.
    Key,
    /// The value at these pointers.
    Value(Pointers),
}

/// An open container on the path of a pointer.
#[derive(Clone, Copy, Debug)]
struct Container {
    /// The pointers that lead into it.
    within: Pointers,
    place: Place,
}

/// The place in a container.
#[derive(Clone, Copy, Debug)]
enum Place {
    Object {
        /// A value comes next, not a key.
        expects_value: bool,
        /// The pointers that lead to the member.
        member: Pointers,
    },
    Item(u64),
}

impl JsonScan {
    /// A search for the values at these pointers, at most 32.
    pub fn new(pointers: Arc<[JsonPointer]>) -> Self {
        debug_assert!(pointers.len() <= Pointers::BITS as usize);
        JsonScan {
            found: smallvec![None; pointers.len()],
            pointers,
            state: ScanState::Between,
            depth: 0,
            path: SmallVec::new(),
            text: SmallVec::new(),
            bytes: 0,
        }
    }

    /// Reads the next piece of the input, cut anywhere.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > LARGEST_DOCUMENT {
            self.state = ScanState::Broken;
        }
        while !bytes.is_empty() {
            bytes = match self.state {
                ScanState::Between => self.between(bytes),
                ScanState::String { role, is_escaped } => self.string(bytes, role, is_escaped),
                ScanState::Scalar { at } => self.scalar(bytes, at),
                ScanState::Broken => return,
            };
        }
    }

    /// Ends the input: passes on the values of documents that are whole, each with the place of its
    /// pointer, and begins anew.
    ///
    /// # Errors
    /// When a document is not whole, or the input is none.
    pub fn finish(&mut self, mut take: impl FnMut(usize, JsonValue)) -> Result<(), InvalidJson> {
        if let ScanState::Scalar { at } = self.state {
            self.end_scalar(at);
        }
        let is_whole = self.state == ScanState::Between && self.depth == 0;
        for (place, value) in self.found.iter_mut().enumerate() {
            if let Some(value) = value.take().filter(|_| is_whole) {
                take(place, value);
            }
        }
        (self.state, self.depth, self.bytes) = (ScanState::Between, 0, 0);
        self.path.clear();
        self.text.clear();
        if is_whole { Ok(()) } else { Err(InvalidJson) }
    }

    /// The value that was found so far at the pointer of this place.
    pub fn found(&self, place: usize) -> Option<&JsonValue> {
        self.found[place].as_ref()
    }

    /// Reads up to the beginning of a string or scalar.
    fn between<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'{' | b'[' => self.open(byte),
                b'}' | b']' if self.depth == 0 => self.state = ScanState::Broken,
                b'}' | b']' => {
                    self.depth -= 1;
                    self.path
                        .truncate(usize::try_from(self.depth).unwrap_or(usize::MAX));
                }
                b',' => self.next_item(),
                b':' => self.expect_value(),
                b'"' => {
                    self.begin_string();
                    return &bytes[at + 1..];
                }
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                    self.text.clear();
                    self.state = ScanState::Scalar {
                        at: self.targets(self.leading_here()),
                    };
                    return &bytes[at..];
                }
                _ => self.state = ScanState::Broken,
            }
            if self.state == ScanState::Broken {
                break;
            }
        }
        &[]
    }

    fn open(&mut self, bracket: u8) {
        let leading = self.leading_here();
        let targets = self.targets(leading);
        self.keep_value(targets, &JsonValue::Other);
        let within = leading & !targets;
        if within != 0 {
            let place = match bracket {
                b'{' => Place::Object {
                    expects_value: false,
                    member: 0,
                },
                _ => Place::Item(0),
            };
            self.path.push(Container { within, place });
        }
        self.depth += 1;
    }

    /// Behind a comma.
    fn next_item(&mut self) {
        match self.innermost() {
            Some(Place::Object {
                expects_value,
                member,
            }) => (*expects_value, *member) = (false, 0),
            Some(Place::Item(index)) => *index += 1,
            None => {}
        }
    }

    /// Behind a colon.
    fn expect_value(&mut self) {
        if let Some(Place::Object { expects_value, .. }) = self.innermost() {
            *expects_value = true;
        }
    }

    /// The place in the innermost open container, if that lies on a path.
    fn innermost(&mut self) -> Option<&mut Place> {
        let is_innermost = self.path.len() as u64 == self.depth;
        let container = self.path.last_mut().filter(|_| is_innermost);
        container.map(|container| &mut container.place)
    }

    /// The pointers that lead to or into a value that begins here.
    fn leading_here(&self) -> Pointers {
        if self.path.len() as u64 != self.depth {
            return 0;
        }
        match self.path.last() {
            None => self.among(Pointers::MAX, |_| true),
            Some(Container { within, place }) => match *place {
                Place::Object {
                    expects_value: true,
                    member,
                } => member,
                Place::Object { .. } => 0,
                Place::Item(index) => self.among(*within, |tokens| {
                    is_index(&tokens[self.path.len() - 1], index)
                }),
            },
        }
    }

    /// The pointers of this set whose reference tokens are `wanted`.
    fn among(&self, set: Pointers, wanted: impl Fn(&[Box<str>]) -> bool) -> Pointers {
        let all = self.pointers.iter().enumerate();
        let chosen = all
            .filter(|(place, pointer)| set & (1 << place) != 0 && wanted(pointer.tokens()))
            .map(|(place, _)| 1 << place);
        chosen.fold(0, |all, one: Pointers| all | one)
    }

    /// Those of the pointers that lead here which end here.
    fn targets(&self, leading: Pointers) -> Pointers {
        match leading {
            0 => 0,
            _ => self.among(leading, |tokens| tokens.len() == self.path.len()),
        }
    }

    fn keep_value(&mut self, at: Pointers, value: &JsonValue) {
        for (place, found) in self.found.iter_mut().enumerate() {
            if at & (1 << place) != 0 {
                *found = Some(value.clone());
            }
        }
    }

    fn begin_string(&mut self) {
        self.text.clear();
        let role = match self.innermost() {
            Some(Place::Object {
                expects_value: false,
                ..
            }) => Role::Key,
            _ => Role::Value(self.targets(self.leading_here())),
        };
        self.state = ScanState::String {
            role,
            is_escaped: false,
        };
    }

    /// Reads the next bytes of a string.
    fn string<'a>(&mut self, bytes: &'a [u8], role: Role, is_escaped: bool) -> &'a [u8] {
        let length = if is_escaped {
            1
        } else {
            memchr::memchr2(b'"', b'\\', bytes).map_or(bytes.len(), |at| at + 1)
        };
        let (piece, rest) = bytes.split_at(length);
        let last = piece[length - 1];
        if !is_escaped && last == b'"' {
            self.keep(role, &piece[..length - 1]);
            self.end_string(role);
            return rest;
        }
        self.keep(role, piece);
        self.state = ScanState::String {
            role,
            is_escaped: !is_escaped && last == b'\\',
        };
        rest
    }

    /// Keeps a piece of a key, up to the longest spelling of a searched one, or of a searched text.
    fn keep(&mut self, role: Role, piece: &[u8]) {
        let most = match role {
            // A byte is written as six at most: `\u0041`.
            Role::Key => {
                let tokens = self.tokens().map(|(_, token)| token.len());
                6 * tokens.max().unwrap_or(0)
            }
            Role::Value(0) => return,
            Role::Value(_) => LONGEST_TEXT,
        };
        let room = (most + 1).saturating_sub(self.text.len()).min(piece.len());
        self.text.extend_from_slice(&piece[..room]);
    }

    /// The reference tokens that the innermost container is searched for, with their pointers.
    fn tokens(&self) -> impl Iterator<Item = (Pointers, &str)> {
        let (depth, innermost) = (self.path.len(), self.path.last());
        let within = innermost.map_or(0, |container| container.within);
        let all = self.pointers.iter().enumerate();
        let all = all.map(|(place, pointer)| (1 << place, pointer));
        let leading = all.filter(move |(bit, _)| within & bit != 0);
        leading.map(move |(bit, pointer)| (bit, &*pointer.tokens()[depth - 1]))
    }

    fn end_string(&mut self, role: Role) {
        self.state = ScanState::Between;
        match role {
            Role::Key => {
                let named = self
                    .tokens()
                    .filter(|(_, token)| is_spelling(&self.text, token));
                let named = named.fold(0, |all, (bit, _)| all | bit);
                if let Some(Place::Object { member, .. }) = self.innermost() {
                    *member = named;
                }
            }
            Role::Value(0) => {}
            Role::Value(at) => {
                let is_kept = self.text.len() <= LONGEST_TEXT;
                let text = is_kept.then(|| unquoted(&self.text)).flatten();
                let value = text.map_or(JsonValue::Other, |text| JsonValue::Text(text.into()));
                self.keep_value(at, &value);
            }
        }
    }

    /// Reads the next bytes of a number or literal.
    fn scalar<'a>(&mut self, bytes: &'a [u8], at: Pointers) -> &'a [u8] {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = bytes.iter().take_while(|byte| is_part(byte)).count();
        let (piece, rest) = bytes.split_at(length);
        let room = (LONGEST_NUMBER + 1).saturating_sub(self.text.len());
        self.text.extend_from_slice(&piece[..room.min(length)]);
        if !rest.is_empty() {
            self.end_scalar(at);
        }
        rest
    }

    fn end_scalar(&mut self, at: Pointers) {
        self.state = ScanState::Between;
        if at == 0 || *self.text == *b"null" {
            return;
        }
        let number = str::from_utf8(&self.text).ok().filter(|text| {
            text.len() <= LONGEST_NUMBER && text.starts_with(|c: char| c != 't' && c != 'f')
        });
        let value = number.map_or(JsonValue::Other, |text| JsonValue::Number(text.into()));
        self.keep_value(at, &value);
    }
}

/// Returns true if a reference token names the item at `index`.
fn is_index(token: &str, index: u64) -> bool {
    let is_canonical = token == "0" || !token.starts_with(['0', '+']);
    token == ANY_ITEM || is_canonical && token.parse() == Ok(index)
}

/// Returns true if the content of a quoted string, with its escapes, is `text`.
fn is_spelling(written: &[u8], text: &str) -> bool {
    if !written.contains(&b'\\') {
        return written == text.as_bytes();
    }
    unquoted(written).is_some_and(|read| read == text)
}

/// The text of a quoted string's content, unless it is invalid.
fn unquoted(written: &[u8]) -> Option<String> {
    let quoted = [&b"\""[..], written, b"\""].concat();
    serde_json::from_slice(&quoted).ok()
}

#[cfg(test)]
mod tests;

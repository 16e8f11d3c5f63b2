//! Values with their place in the document.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use derive_more::{Deref, Display};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use super::document::{LOCATED, NodeId};

/// A value and its place in the document. Comparisons use the value alone.
///
/// An unreadable value is recorded as an error and replaced by its default. Its parent can still be
/// checked, but is never used.
#[derive(Clone, Copy, Debug, Deref, Display, Serialize)]
#[display("{value}")]
#[serde(transparent)]
pub struct Located<T> {
    /// The value, or its default.
    #[deref]
    pub value: T,
    /// The node; [`NodeId::ABSENT`] for a default.
    #[serde(skip)]
    pub node: NodeId,
}

/// A list of located items.
pub type List<T> = Located<Vec<Located<T>>>;
/// A mapping with the user's own names. Names and values are located.
pub type Table<K, V> = Located<BTreeMap<Located<K>, Located<V>>>;

impl<T: Clone> List<T> {
    /// The items without their places.
    pub(super) fn values<C: FromIterator<T>>(&self) -> C {
        self.iter().map(|item| item.value.clone()).collect()
    }
}

/// An optional value.
pub(super) trait Given {
    /// The node, if it is given.
    fn given(&self) -> Option<NodeId>;
}

impl<T> Given for Located<T> {
    fn given(&self) -> Option<NodeId> {
        self.node.given()
    }
}

impl<T> Given for Option<Located<T>> {
    fn given(&self) -> Option<NodeId> {
        self.as_ref().map(|value| value.node)
    }
}

impl<T> From<T> for Located<T> {
    /// Wraps a value without a place.
    fn from(value: T) -> Self {
        Self {
            value,
            node: NodeId::ABSENT,
        }
    }
}

impl<T: Default> Default for Located<T> {
    fn default() -> Self {
        Self::from(T::default())
    }
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Located<T> {}

impl<T: PartialOrd> PartialOrd for Located<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for Located<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(LOCATED, LocatedVisitor(PhantomData))
    }
}

struct LocatedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for LocatedVisitor<T> {
    type Value = Located<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with its place")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Located<T>, A::Error> {
        let node = parts.next_element()?.map_or(NodeId::ABSENT, NodeId);
        let value = parts.next_element().ok().flatten().unwrap_or_default();
        Ok(Located { value, node })
    }
}

/// Makes an enum whose variant depends on the form of the value, which stands behind it. In
/// parentheses are its name in the JSON Schema and what errors expect. The first variant has the
/// default, and serde writes the value inside.
macro_rules! by_form {
    (
        $(#[$attribute:meta])*
        pub enum $type:ident($name:tt, $expected:tt) {
            $(#[$of_first:meta])*
            $first:ident($inner:ty) = $form:tt,
            $($(#[$of_other:meta])*
            $variant:ident($other:ty) = $other_form:tt,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename = "$form", expecting = $expected)]
        #[schemars(rename = $name, untagged)]
        pub enum $type {
            $(#[$of_first])*
            #[serde(rename = $form)]
            $first($inner),
            $($(#[$of_other])*
            #[serde(rename = $other_form)]
            $variant($other),)+
        }

        impl Default for $type {
            fn default() -> Self {
                Self::$first(Default::default())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::$first(value) => serde::Serialize::serialize(value, to),
                    $(Self::$variant(value) => serde::Serialize::serialize(value, to),)+
                }
            }
        }
    };
}
pub(super) use by_form;

/// Gives a wrapper the JSON Schema of the value inside.
macro_rules! schema_of_inner {
    ($type:ident) => {
        impl<T: schemars::JsonSchema> schemars::JsonSchema for $type<T> {
            fn inline_schema() -> bool {
                T::inline_schema()
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                T::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                T::schema_id()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                T::json_schema(generator)
            }
        }
    };
}
pub(super) use schema_of_inner;

schema_of_inner!(Located);

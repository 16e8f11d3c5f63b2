//! Words of the configuration for the enums of other layers: one enum says what runs, and the
//! configuration says how it is written.

/// A value that is written as one of a set of words.
pub(super) trait Word {
    /// The word.
    fn word(self) -> &'static str;
}

/// Gives an enum of another layer its words and their descriptions, for serde and the JSON Schema.
/// The name is that of its definition in the schema.
macro_rules! words {
    (
        $(#[$doc:meta])*
        $name:literal for $type:ty {
            $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        const _: () = {
            $(#[$doc])*
            #[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
            #[serde(rename = $name)]
            enum Words {
                $($(#[$word_doc])* #[serde(rename = $word)] $variant,)+
            }

            impl<'de> serde::Deserialize<'de> for $type {
                fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    Ok(match <Words as serde::Deserialize>::deserialize(from)? {
                        $(Words::$variant => Self::$variant,)+
                    })
                }
            }

            impl serde::Serialize for $type {
                fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    let word = match self {
                        $(Self::$variant => Words::$variant,)+
                    };
                    serde::Serialize::serialize(&word, to)
                }
            }

            impl schemars::JsonSchema for $type {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    <Words as schemars::JsonSchema>::schema_name()
                }

                fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                    <Words as schemars::JsonSchema>::json_schema(generator)
                }
            }

            impl $crate::config::words::Word for $type {
                fn word(self) -> &'static str {
                    match self {
                        $(Self::$variant => $word,)+
                    }
                }
            }
        };
    };
}
pub(super) use words;

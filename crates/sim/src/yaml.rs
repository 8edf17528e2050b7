//! Scenarios from YAML: the tree that [`loxley_config`] reads, handed to whatever can be deserialized, with the place of
//! what is wrong.

use std::fmt;
use std::ops::Range;

use loxley_config::{Key, Limits, Node, Style, Value};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// Room for scenarios that programs write.
const LIMITS: Limits = Limits {
    bytes: 64 << 20,
    nodes: 10_000_000,
    depth: 64,
};

/// What the text says, as a `T`; an empty text is nothing.
pub(crate) fn from_str<T: de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    let root = Node::parse(text, &LIMITS).map_err(|mistake| Error {
        message: mistake.message,
        span: Some(mistake.span),
    });
    let nothing = Node {
        value: Value::Scalar(String::new(), Style::Plain),
        span: 0..0,
    };
    let root = match text.trim().is_empty() {
        true => Ok(nothing),
        false => root,
    };
    root.and_then(|root| T::deserialize(Tree(&root)))
        .map_err(|error| error.in_text(text))
}

/// What is wrong, and where.
#[derive(Debug)]
pub(crate) struct Error {
    message: String,
    span: Option<Range<usize>>,
}

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            span: None,
        }
    }

    /// Says the place; an error from further inside knows it better.
    fn at(mut self, span: &Range<usize>) -> Self {
        self.span.get_or_insert_with(|| span.clone());
        self
    }

    /// The place in words.
    fn in_text(self, text: &str) -> Self {
        let Some(span) = self.span else {
            return self;
        };
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self::new(format!("line {line} column {column}: {}", self.message))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

/// A node as whoever deserializes wants it.
#[derive(Clone, Copy)]
struct Tree<'n>(&'n Node);

impl<'n> Tree<'n> {
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.value {
            Value::Scalar(text, Style::Quoted) => visitor.visit_str(text),
            Value::Scalar(text, Style::Plain) => visit_plain(self.0, text, visitor),
            Value::List(items) => visitor.visit_seq(List(items.iter())),
            Value::Mapping(entries) => {
                let mut mapping = Mapping {
                    rest: entries.iter(),
                    seen: Vec::new(),
                    value: None,
                };
                let visited = visitor.visit_map(&mut mapping)?;
                match mapping.rest.next() {
                    None => Ok(visited),
                    Some((key, _)) => Err(Error::new("one key too many").at(&key.span)),
                }
            }
        }
    }
}

/// `true`, `3`, `0.5`, a word: what it looks like.
fn visit_plain<'de, V: Visitor<'de>>(
    node: &Node,
    text: &str,
    visitor: V,
) -> Result<V::Value, Error> {
    match text {
        _ if node.is_null() => return visitor.visit_unit(),
        "true" | "True" | "TRUE" => return visitor.visit_bool(true),
        "false" | "False" | "FALSE" => return visitor.visit_bool(false),
        ".inf" | "+.inf" => return visitor.visit_f64(f64::INFINITY),
        "-.inf" => return visitor.visit_f64(f64::NEG_INFINITY),
        ".nan" => return visitor.visit_f64(f64::NAN),
        _ => {}
    }
    if let Ok(number) = text.parse::<u64>() {
        return visitor.visit_u64(number);
    }
    if let Ok(number) = text.parse::<i64>() {
        return visitor.visit_i64(number);
    }
    // What Rust takes for a number and YAML does not are words: inf, nan, infinity.
    let is_number = text.contains(|letter: char| letter.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(number) if is_number => visitor.visit_f64(number),
        _ => visitor.visit_str(text),
    }
}

impl<'de> Deserializer<'de> for Tree<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor).map_err(|error| error.at(&self.0.span))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.value {
            // A text is a text, whatever it looks like.
            Value::Scalar(text, _) if !self.0.is_null() => visitor
                .visit_str(text)
                .map_err(|error: Error| error.at(&self.0.span)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.is_null() {
            true => visitor.visit_none(),
            false => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let visited = match &self.0.value {
            Value::Scalar(word, _) => visitor.visit_enum(Choice {
                word,
                content: None,
            }),
            Value::Mapping(entries) => match entries.as_slice() {
                [(key, content)] => visitor
                    .visit_enum(Choice {
                        word: &key.name,
                        content: Some(content),
                    })
                    .map_err(|error: Error| error.at(&key.span)),
                _ => Err(Error::new("one key is expected, that says which it is")),
            },
            Value::List(_) => Err(Error::new("a word or a key is expected, not a list")),
        };
        visited.map_err(|error: Error| error.at(&self.0.span))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct
        map struct identifier ignored_any
    }
}

struct List<'n>(std::slice::Iter<'n, Node>);

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0
            .next()
            .map(|node| seed.deserialize(Tree(node)))
            .transpose()
    }
}

struct Mapping<'n> {
    rest: std::slice::Iter<'n, (Key, Node)>,
    seen: Vec<&'n str>,
    value: Option<&'n Node>,
}

impl<'de> MapAccess<'de> for &mut Mapping<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        let at_key = |error: Error| error.at(&key.span);
        if self.seen.contains(&key.name.as_str()) {
            let twice = format!("the key `{}` is there twice", key.name);
            return Err(at_key(Error::new(twice)));
        }
        self.seen.push(&key.name);
        self.value = Some(value);
        let name: StrDeserializer<'_, Error> = StrDeserializer::new(&key.name);
        seed.deserialize(name).map(Some).map_err(at_key)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value.take().expect("a key comes before its value");
        seed.deserialize(Tree(value))
    }
}

/// A word out of several, with what belongs to it.
struct Choice<'n> {
    word: &'n str,
    content: Option<&'n Node>,
}

impl<'de, 'n> EnumAccess<'de> for Choice<'n> {
    type Error = Error;
    type Variant = Content<'n>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Content<'n>), Error> {
        let word: StrDeserializer<'_, Error> = StrDeserializer::new(self.word);
        Ok((seed.deserialize(word)?, Content(self.content)))
    }
}

struct Content<'n>(Option<&'n Node>);

impl<'n> Content<'n> {
    fn tree(self) -> Result<Tree<'n>, Error> {
        let missing = || Error::new("a value is expected behind it");
        self.0.map(Tree).ok_or_else(missing)
    }
}

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.0 {
            Some(node) if !node.is_null() => {
                Err(Error::new("nothing is expected behind it").at(&node.span))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.tree()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.tree()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.tree()?.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::from_str;

    #[test]
    fn words_numbers_and_groups_are_what_they_look_like() {
        let text = "a: 1\nb: [-2, 0.5, .inf, yes, 'true', true, ~]\nc: {d: 1e3, e: \"7\"}\n";
        let value: serde_json::Value = from_str(text).unwrap();
        let list = json!([-2, 0.5, null, "yes", "true", true, null]);
        assert_eq!(
            value,
            json!({"a": 1, "b": list, "c": {"d": 1000.0, "e": "7"}})
        );
        assert_eq!(from_str::<serde_json::Value>(" ").unwrap(), json!(null));
        assert_eq!(from_str::<serde_json::Value>("8").unwrap(), json!(8));
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Farm {
        name: String,
        #[serde(default)]
        herd: Vec<Animal>,
        acres: Option<f64>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Animal {
        Cow,
        Sheep(u32),
        Horse { age: u8 },
    }

    #[test]
    fn types_are_read_and_mistakes_have_a_place() {
        let farm: Farm =
            from_str("name: 5\nherd: [cow, sheep: 3, horse: {age: 9}]\nacres:\n").unwrap();
        assert_eq!(
            farm.herd,
            [Animal::Cow, Animal::Sheep(3), Animal::Horse { age: 9 }]
        );
        assert_eq!((farm.name.as_str(), farm.acres), ("5", None));
        for (text, expected) in [
            ("name: a\nhrd: []\n", "line 2 column 1: unknown field `hrd`"),
            ("herd: []\n", "line 1 column 1: missing field `name`"),
            (
                "name: a\nname: b\n",
                "line 2 column 1: the key `name` is there twice",
            ),
            (
                "name: a\nherd:\n  - goat\n",
                "line 3 column 5: unknown variant `goat`",
            ),
            (
                "name: a\nherd: [{horse: {age: old}}]\n",
                "line 2 column 22: invalid type",
            ),
            (
                "name: a\nherd: [sheep]\n",
                "line 2 column 8: a value is expected",
            ),
            ("name: [a\n", "line "),
        ] {
            let error = from_str::<Farm>(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}

//! The fields that a kind of qdisc or class has beyond those of all: a JSON object, in few bytes.
//!
//! *Idea.* The object is kept as one string of bytes, in its order: for each field the number of
//! its name ([`names`]) and its value, nested ones in the same way. A parameter or counter takes
//! two to seven bytes, where an entry of `serde_json::Map` takes 104 and the heap for its name. A
//! lookup reads from the front, and builds a value only if it is found: there are a few dozen
//! fields.
//!
//! It is read and written as the object that it is. A name that occurs twice stays twice, and the
//! first counts.

use crate::names;
use crate::packed::{Unpack, from_thousandths, put_number, put_text, thousandths};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::cell::Cell;
use std::fmt;

/// A JSON object in few bytes: its fields in their order, as one string of bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields(Box<[u8]>);

/// Before the name of a field: the end of a nested object, a name that is written out, or the
/// number of a name and this.
const NO_NAME: u64 = 0;
const WRITTEN_OUT: u64 = 1;
const NUMBERED: u64 = 2;

/// Before a value: its type.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const UNSIGNED: u8 = 3;
    /// Below 0: the distance from -1.
    pub(super) const NEGATIVE: u8 = 4;
    pub(super) const REAL: u8 = 5;
    /// A real number, in thousandths.
    pub(super) const THOUSANDTHS: u8 = 6;
    pub(super) const TEXT: u8 = 7;
    /// Its values follow, and an [`END`].
    pub(super) const LIST: u8 = 8;
    /// Its fields follow, and a name that is [`NO_NAME`](super::NO_NAME).
    pub(super) const OBJECT: u8 = 9;
    pub(super) const END: u8 = 10;
    /// An unsigned number by itself: the difference to this.
    pub(super) const SMALL: u8 = 11;
}

impl Fields {
    /// The value of the field `name`.
    pub fn get(&self, name: &str) -> Option<Value> {
        let wanted = names::known(name);
        let mut from = Unpack(&self.0);
        while !from.is_over() {
            let found = match from.number() {
                WRITTEN_OUT => from.text() == name,
                number => wanted.is_some_and(|wanted| wanted as u64 + NUMBERED == number),
            };
            let value = Packed::next(&mut from);
            if found {
                return serde_json::to_value(value).ok();
            }
        }
        None
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The name of the next field; none if the object ends.
fn next_name<'a>(from: &mut Unpack<'a>) -> Option<&'a str> {
    match from.number() {
        NO_NAME => None,
        WRITTEN_OUT => Some(from.text()),
        number => Some(names::name((number - NUMBERED) as usize)),
    }
}

fn skip(from: &mut Unpack<'_>) {
    match from.byte() {
        tag::UNSIGNED | tag::NEGATIVE | tag::THOUSANDTHS => drop(from.number()),
        tag::REAL => drop(from.real()),
        tag::TEXT => drop(from.text()),
        tag::LIST => {
            while list_goes_on(from) {
                skip(from);
            }
        }
        tag::OBJECT => {
            while next_name(from).is_some() {
                skip(from);
            }
        }
        _ => {}
    }
}

/// Whether there is another value in the list, whose end is read otherwise.
fn list_goes_on(from: &mut Unpack<'_>) -> bool {
    let goes_on = from.0.first().is_some_and(|byte| *byte != tag::END);
    if !goes_on {
        from.byte();
    }
    goes_on
}

/// A value that is packed.
struct Packed<'a>(Unpack<'a>);

impl<'a> Packed<'a> {
    /// The next one in `from`.
    fn next(from: &mut Unpack<'a>) -> Self {
        let begin = *from;
        skip(from);
        Self(begin)
    }
}

impl Serialize for Packed<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut from = self.0;
        match from.byte() {
            tag::FALSE => to.serialize_bool(false),
            tag::TRUE => to.serialize_bool(true),
            tag::UNSIGNED => to.serialize_u64(from.number()),
            tag::NEGATIVE => to.serialize_i64(-1 - from.number() as i64),
            tag::REAL => to.serialize_f64(from.real()),
            tag::THOUSANDTHS => to.serialize_f64(from_thousandths(from.number())),
            tag::TEXT => to.serialize_str(from.text()),
            tag::LIST => {
                let mut list = to.serialize_seq(None)?;
                while list_goes_on(&mut from) {
                    list.serialize_element(&Packed::next(&mut from))?;
                }
                list.end()
            }
            tag::OBJECT => {
                let mut object = to.serialize_map(None)?;
                while let Some(name) = next_name(&mut from) {
                    object.serialize_entry(name, &Packed::next(&mut from))?;
                }
                object.end()
            }
            small @ tag::SMALL.. => to.serialize_u64((small - tag::SMALL).into()),
            tag::NULL | tag::END => to.serialize_unit(),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_map(None)?;
        let mut from = Unpack(&self.0);
        while let Some(name) = next_name(&mut from) {
            object.serialize_entry(name, &Packed::next(&mut from))?;
        }
        object.end()
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        thread_local! {
            /// Where the next ones are packed: the result is of the right size at once.
            static SPACE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
        }
        let mut bytes = SPACE.take();
        bytes.clear();
        let packed = from.deserialize_map(PackFields(&mut bytes));
        let fields = Self(bytes.as_slice().into());
        SPACE.set(bytes);
        packed.map(|()| fields)
    }
}

/// Appends the fields of an object, without an end.
struct PackFields<'a>(&'a mut Vec<u8>);

impl<'de> Visitor<'de> for PackFields<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while object.next_key_seed(PackName(&mut *self.0))?.is_some() {
            object.next_value_seed(PackValue(&mut *self.0))?;
        }
        Ok(())
    }
}

/// Appends the name of a field.
struct PackName<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for PackName<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for PackName<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        if let Some(number) = names::number(name) {
            put_number(self.0, number as u64 + NUMBERED);
        } else {
            put_number(self.0, WRITTEN_OUT);
            put_text(self.0, name);
        }
        Ok(())
    }
}

/// Appends a value.
struct PackValue<'a>(&'a mut Vec<u8>);

impl PackValue<'_> {
    fn tagged(self, tag: u8, number: u64) {
        self.0.push(tag);
        put_number(self.0, number);
    }
}

impl<'de> DeserializeSeed<'de> for PackValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PackValue<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.push(tag::NULL);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.push(if value { tag::TRUE } else { tag::FALSE });
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match u8::try_from(value).ok().and_then(|small| small.checked_add(tag::SMALL)) {
            Some(small) => self.0.push(small),
            None => self.tagged(tag::UNSIGNED, value),
        }
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => {
                self.tagged(tag::NEGATIVE, (-1 - value) as u64);
                Ok(())
            }
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        if let Some(number) = thousandths(value) {
            self.tagged(tag::THOUSANDTHS, number);
        } else {
            self.0.push(tag::REAL);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.push(tag::TEXT);
        put_text(self.0, value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.push(tag::LIST);
        while list.next_element_seed(PackValue(&mut *self.0))?.is_some() {}
        self.0.push(tag::END);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        self.0.push(tag::OBJECT);
        PackFields(&mut *self.0).visit_map(object)?;
        put_number(self.0, NO_NAME);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Map, json};

    fn values() -> impl Strategy<Value = Value> {
        let names = || prop_oneof!["[a-e]{1,2}", ".{0,90}"];
        let single = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (0u64..400).prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (0u64..1 << 40).prop_map(|ns| Value::from(ns as f64 / 1e3)),
            ".{0,20}".prop_map(Value::from),
        ];
        single.prop_recursive(4, 60, 8, move |inner| {
            prop_oneof![
                vec(inner.clone(), 0..8).prop_map(Value::from),
                vec((names(), inner), 0..8)
                    .prop_map(|all| Value::from(all.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_object_is_the_same_to_the_byte(
            all in vec((prop_oneof!["[a-z]{1,3}", ".{0,90}"], values()), 0..12),
        ) {
            let object: Map<String, Value> = all.into_iter().collect();
            let text = serde_json::to_string(&object).unwrap();
            // serde_json may read another last digit of a real number than it has written.
            let object: Map<String, Value> = serde_json::from_str(&text).unwrap();
            let fields: Fields = serde_json::from_str(&text).unwrap();
            let [read, own] = [serde_json::to_string(&object), serde_json::to_string(&fields)];
            prop_assert_eq!(own.unwrap(), read.unwrap());
            let of_value: Fields = serde_json::from_value(object.clone().into()).unwrap();
            prop_assert_eq!(&of_value, &fields);
            prop_assert_eq!(fields.is_empty(), object.is_empty());
            for (name, value) in &object {
                prop_assert_eq!(fields.get(name), Some(value.clone()), "{}", name);
            }
            prop_assert_eq!(fields.get("no such field"), None);
        }
    }

    #[test]
    fn a_field_takes_a_few_bytes() {
        let fields: Fields = serde_json::from_value(json!({
            "limit": 10240, "flows": 1024, "target": 4999, "ecn": true, "drop_batch": 64,
            "tokens": -40_000, "delay_us": 24.584,
        }))
        .unwrap();
        assert!(fields.0.len() <= 7 * 5, "{}", fields.0.len());
    }

    #[test]
    fn a_name_that_occurs_twice_stays_twice() {
        let text = r#"{"a":1,"b":[],"a":{"c":2}}"#;
        let fields: Fields = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), text);
        assert_eq!(fields.get("a"), Some(1.into()));
        assert_eq!(format!("{fields:?}"), text);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "1", "{\"a\":1", "{\"a\":}", "null"] {
            assert!(serde_json::from_str::<Fields>(text).is_err(), "{text}");
        }
    }
}

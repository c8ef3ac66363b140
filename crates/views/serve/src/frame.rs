//! What a client with a stream gets: what differs from what it has.
//!
//! A screen is parts and, for tables, rows with an order. A message is a JSON object of the parts
//! that changed; `order` lists the rows of the window, `rows` has those that changed. A client
//! keeps the rows in `order` and forgets all others, and so does the server, which keeps a hash of
//! each.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};

/// A screen at one moment, as JSON texts.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// By name.
    pub(crate) parts: Vec<(&'static str, String)>,
    /// By id, in their order. None if the screen has no table.
    pub(crate) rows: Option<Vec<(String, String)>>,
    /// Parts that go out as they are: they have only what is new.
    pub(crate) news: Vec<(&'static str, String)>,
}

/// What a client has.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    hasher: RandomState,
    parts: HashMap<&'static str, u64>,
    rows: HashMap<String, u64>,
}

impl Sent {
    /// What brings the client to `frame`.
    pub(crate) fn message(&mut self, frame: &Frame) -> String {
        let mut message = String::from("{");
        let mut add = |name: &str, text: &str| {
            let comma = if message.len() > 1 { "," } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(message, "{comma}\"{name}\":{text}");
        };
        for (name, text) in &frame.parts {
            if self.is_new(name, text) {
                add(name, text);
            }
        }
        for (name, text) in &frame.news {
            add(name, text);
        }
        if let Some(rows) = &frame.rows {
            let mut now = HashMap::with_capacity(rows.len());
            let mut text = String::from("{");
            for (id, row) in rows {
                let hash = self.hasher.hash_one(row);
                if self.rows.get(id) != Some(&hash) && !now.contains_key(id) {
                    let comma = if text.len() > 1 { "," } else { "" };
                    let _ = write!(text, "{comma}{}:{row}", serde_json::Value::from(id.as_str()));
                }
                now.insert(id.clone(), hash);
            }
            text.push('}');
            self.rows = now;
            let ids: Vec<&str> = rows.iter().map(|(id, _)| id.as_str()).collect();
            let order = serde_json::Value::from(ids).to_string();
            if self.is_new("order", &order) {
                add("order", &order);
            }
            if text.len() > 2 {
                add("rows", &text);
            }
        }
        message.push('}');
        message
    }

    fn is_new(&mut self, name: &'static str, text: &str) -> bool {
        let hash = self.hasher.hash_one(text);
        self.parts.insert(name, hash) != Some(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use std::collections::BTreeMap;

    fn frame(parts: &BTreeMap<u8, u8>, rows: &[(u8, u8)]) -> Frame {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let parts = parts.iter().map(|(name, value)| (NAMES[*name as usize], value.to_string()));
        let rows = rows.iter().map(|(id, value)| (format!("row \"{id}\""), value.to_string()));
        Frame { parts: parts.collect(), rows: Some(rows.collect()), news: Vec::new() }
    }

    /// What a browser does with a message.
    #[derive(Default)]
    struct Client {
        parts: Map<String, Value>,
        rows: Map<String, Value>,
    }

    impl Client {
        fn take(&mut self, message: &str) {
            let Value::Object(mut message) = serde_json::from_str(message).unwrap() else {
                panic!("it is an object")
            };
            if let Some(Value::Object(rows)) = message.remove("rows") {
                self.rows.extend(rows);
            }
            self.parts.extend(message);
            let order = self.parts["order"].as_array().unwrap().clone();
            self.rows.retain(|id, _| order.iter().any(|known| known == id));
        }
    }

    #[test]
    fn what_has_not_changed_is_not_sent_again() {
        let mut sent = Sent::default();
        let one = frame(&BTreeMap::from([(0, 1), (1, 2)]), &[(1, 1), (2, 2)]);
        let first: Value = serde_json::from_str(&sent.message(&one)).unwrap();
        assert_eq!(first["rows"], json!({"row \"1\"": 1, "row \"2\"": 2}));
        assert_eq!(sent.message(&one), "{}");
        let two = frame(&BTreeMap::from([(0, 1), (1, 3)]), &[(1, 1), (2, 3)]);
        assert_eq!(sent.message(&two), r#"{"b":3,"rows":{"row \"2\"":3}}"#);
    }

    #[test]
    fn news_are_sent_each_time() {
        let mut sent = Sent::default();
        let frame = Frame { news: vec![("recent", "[1]".into())], ..Frame::default() };
        assert_eq!(sent.message(&frame), sent.message(&frame));
    }

    proptest! {
        #[test]
        fn a_client_that_takes_all_messages_has_the_last_frame(
            frames in proptest::collection::vec((
                proptest::collection::btree_map(0u8..4, 0u8..3, 4),
                proptest::collection::btree_map(0u8..6, 0u8..3, 0..6),
            ), 1..12),
        ) {
            let (mut sent, mut client) = (Sent::default(), Client::default());
            for (parts, rows) in &frames {
                let rows: Vec<(u8, u8)> = rows.iter().map(|(id, row)| (*id, *row)).collect();
                let frame = frame(parts, &rows);
                client.take(&sent.message(&frame));
                for (name, text) in &frame.parts {
                    prop_assert_eq!(&client.parts[*name].to_string(), text);
                }
                let rows = frame.rows.unwrap();
                prop_assert_eq!(client.rows.len(), rows.len());
                for (id, text) in rows {
                    prop_assert_eq!(&client.rows[&id].to_string(), &text);
                }
            }
        }
    }
}

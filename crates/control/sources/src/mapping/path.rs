//! Paths and conditions.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json_path::{JsonPath, PathElement};

/// The longest path or condition in bytes.
const LENGTH_MAX: usize = 500;
/// The most brackets within each other: the parser takes stack, and time, for each.
const DEPTH_MAX: usize = 8;

/// Where a value is in a record: the name of a member, or a JSONPath (RFC 9535) if it begins with
/// `$`.
#[derive(Clone, Debug)]
pub struct Path {
    text: String,
    query: Option<JsonPath>,
}

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a path is empty: it is the name of a column or member, or a JSONPath \
                        as $.plan.rate"
                .to_owned());
        }
        check_size(text)?;
        let is_query = text.starts_with('$');
        let query = is_query
            .then(|| JsonPath::parse(text))
            .transpose()
            .map_err(|error| format!("{text} is no JSONPath: {error}"))?;
        Ok(Self { text: text.to_owned(), query })
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of the member, if it is one and no JSONPath.
    pub(crate) fn name(&self) -> Option<&str> {
        self.query.is_none().then_some(self.text.as_str())
    }

    /// All values there.
    #[must_use]
    pub fn values<'v>(&self, record: &'v Value) -> Vec<&'v Value> {
        match &self.query {
            Some(query) => query.query(record).all(),
            None => record.get(&self.text).into_iter().collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A condition on records: what RFC 9535 has between `[?` and `]`, as `@.status == 'active'`.
#[derive(Clone, Debug)]
pub struct Where(JsonPath);

impl Where {
    /// Reads a condition.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_size(text)?;
        let query = JsonPath::parse(&format!("$[?{text}]"));
        query.map(Self).map_err(|_| {
            format!(
                "{} is no condition of JSONPath: write it as @.status == 'active' && @.speed > 0",
                crate::fault::quoted(text)
            )
        })
    }

    /// Which elements of an array fulfil it.
    pub(crate) fn holds(&self, records: &Value) -> Vec<bool> {
        let mut holds = vec![false; records.as_array().map_or(0, Vec::len)];
        for node in self.0.query_located(records) {
            if let Some(PathElement::Index(index)) = node.location().iter().next()
                && let Some(holds) = holds.get_mut(*index)
            {
                *holds = true;
            }
        }
        holds
    }
}

impl<'de> Deserialize<'de> for Where {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

fn check_size(text: &str) -> Result<(), String> {
    if text.len() > LENGTH_MAX {
        return Err(format!("a path or condition has more than {LENGTH_MAX} bytes"));
    }
    let mut depth = 0_usize;
    for letter in text.bytes() {
        match letter {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(format!(
                "a path or condition has {DEPTH_MAX} brackets within each other \
                                at most"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_is_taken_as_it_is_and_a_path_reaches_all_values() {
        let record = json!({"a.b": 1, "a": {"b": [{"c": 2}, {"c": 3}]}});
        let values = |text| Path::parse(text).unwrap().values(&record);
        assert_eq!(values("a.b"), [&json!(1)]);
        assert_eq!(values("$.a.b[*].c"), [&json!(2), &json!(3)]);
        assert!(values("nothing").is_empty());
        assert!(Path::parse("$.[").is_err() && Path::parse("").is_err());
    }

    #[test]
    fn a_condition_holds_for_some_records() {
        let records = json!([{"s": "on", "n": 5}, {"s": "off"}, {"s": "on", "n": 0}, 7]);
        let condition = Where::parse("@.s == 'on' && @.n > 0").unwrap();
        assert_eq!(condition.holds(&records), [true, false, false, false]);
        assert!(Where::parse("status = active").is_err());
    }

    #[test]
    fn a_condition_that_nests_too_deeply_is_refused_before_it_is_parsed() {
        for text in ["(".repeat(400), "!(".repeat(200), "@[?".repeat(160), "a[".repeat(9)] {
            assert!(Where::parse(&text).unwrap_err().contains("within each other"));
        }
        let deep = |depth| format!("{}@.a == 1{}", "(".repeat(depth), ")".repeat(depth));
        assert!(Where::parse(&deep(DEPTH_MAX)).is_ok());
        assert!(Where::parse(&deep(DEPTH_MAX + 1)).is_err());
    }
}

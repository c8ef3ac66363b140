//! Tables as CSV (RFC 4180), made of what a command prints as JSON.
//!
//! *Rows.* An array of objects is a table: a row for each. An object is a table if one of its
//! members is an array of objects: `rows`, or else the first. Its other members are then columns
//! that are the same in each row. Any other object is a table of one row.
//!
//! *Columns* are the members of the rows, in the order in which they first appear. Members of a
//! member have its name and a dot in front of theirs. What a row lacks is empty. An array within a
//! row is its JSON.
//!
//! Lines end with a line feed alone, as other tools on Linux print them. Non-goals: reading CSV,
//! formulas of spreadsheets (a cell is what the JSON has).

use serde_json::{Map, Value};

/// The columns of a row, in order.
type Row = Map<String, Value>;

/// `value` as CSV, with a line of headings. Empty if there is no row.
pub fn table(value: &Value) -> String {
    let rows = rows(value);
    let mut columns: Vec<&String> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for name in rows.iter().flat_map(Row::keys) {
        if known.insert(name) {
            columns.push(name);
        }
    }
    if columns.is_empty() {
        return String::new();
    }
    let mut text = line(columns.iter().map(|name| name.as_str()));
    for row in &rows {
        let cells: Vec<String> = columns.iter().map(|&name| cell(row.get(name))).collect();
        text += &line(cells.iter().map(String::as_str));
    }
    text
}

fn rows(value: &Value) -> Vec<Row> {
    match value {
        Value::Array(all) => all.iter().flat_map(rows).collect(),
        Value::Object(members) => {
            let is_table = |name: &&String| {
                let array = members[*name].as_array();
                array.is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_object))
            };
            let named = Some("rows".to_owned()).filter(|rows| members.contains_key(rows));
            let Some(inner) = named.as_ref().filter(is_table).or(members.keys().find(is_table))
            else {
                let mut row = Row::new();
                flatten(&mut row, "", members);
                return vec![row];
            };
            let mut same = members.clone();
            same.shift_remove(inner);
            let mut first = Row::new();
            flatten(&mut first, "", &same);
            let of = |one: &Value| {
                let mut row = first.clone();
                // Of two columns with one name the row's own is the more exact.
                flatten(&mut row, "", one.as_object()?);
                Some(row)
            };
            members[inner].as_array().into_iter().flatten().filter_map(of).collect()
        }
        _ => Vec::new(),
    }
}

/// Nothing nests deeper: what is there is JSON.
const DEPTH_MAX: usize = 8;

fn flatten(row: &mut Row, prefix: &str, members: &Map<String, Value>) {
    for (name, value) in members {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(inner) if name.matches('.').count() < DEPTH_MAX => {
                flatten(row, &format!("{name}."), inner);
            }
            other => {
                row.insert(name, other.clone());
            }
        }
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = cells
        .map(|cell| match cell.contains(['"', ',', '\n', '\r']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.to_owned(),
        })
        .collect();
    quoted.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_array_of_objects_is_a_table_whose_columns_come_in_the_order_of_their_appearance() {
        let value = json!([{"b": 1, "a": "x"}, {"a": null, "c": {"p50": 1.5, "p99": 2}}]);
        assert_eq!(table(&value), "b,a,c.p50,c.p99\n1,x,,\n,,1.5,2\n");
    }

    #[test]
    fn an_object_with_rows_repeats_its_other_members_in_each() {
        let value = json!({"seed": 7, "notes": [], "rows": [{"load": 1}, {"load": 2}]});
        assert_eq!(table(&value), "seed,notes,load\n7,[],1\n7,[],2\n");
        let value = json!({"name": "p", "ports": [{"name": "eth1"}]});
        assert_eq!(table(&value), "name\neth1\n", "the row's own");
    }

    #[test]
    fn an_object_without_a_table_is_one_row() {
        assert_eq!(table(&json!({"a": [1, 2], "b": true})), "a,b\n\"[1,2]\",true\n");
        assert_eq!((table(&json!([])), table(&json!(3))), (String::new(), String::new()));
    }

    #[test]
    fn cells_with_commas_quotes_and_line_feeds_are_quoted() {
        let value = json!([{"a": "x,y", "b": "say \"no\"", "c": "two\nlines", "d": "plain"}]);
        assert_eq!(table(&value), "a,b,c,d\n\"x,y\",\"say \"\"no\"\"\",\"two\nlines\",plain\n");
    }
}

//! What a client asks for: which rows, in which order, or which screen.

use std::borrow::Cow;

/// The most rows of an answer.
pub(crate) const ROWS_MAX: usize = 200;
/// The longest search, in characters.
const SEARCH_MAX: usize = 100;
/// The longest id, in characters.
const ID_MAX: usize = 300;

/// Of what there are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Subscribers,
    Sites,
    Hosts,
}

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Name,
    Class,
    Site,
    Members,
    Quality,
    Score,
    Rate,
    Ceil,
    Share,
    Median,
    Delay,
    RoundTrip,
    Before,
    Beyond,
    Drops,
    Queued,
}

/// Columns by name. Those with `true` are of a direction.
const COLUMNS: [(&str, Column, bool); 16] = [
    ("name", Column::Name, false),
    ("class", Column::Class, false),
    ("site", Column::Site, false),
    ("members", Column::Members, false),
    ("quality", Column::Quality, false),
    ("score", Column::Score, false),
    ("rate", Column::Rate, true),
    ("ceil", Column::Ceil, true),
    ("share", Column::Share, true),
    ("median", Column::Median, true),
    ("delay", Column::Delay, true),
    ("round_trip", Column::RoundTrip, true),
    ("before", Column::Before, true),
    ("beyond", Column::Beyond, true),
    ("drops", Column::Drops, true),
    ("queued", Column::Queued, true),
];

/// Of which direction a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Down,
    Up,
    /// The larger one.
    Both,
}

/// Which rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) kind: Kind,
    pub(crate) column: Column,
    pub(crate) of: Of,
    pub(crate) descending: bool,
    /// In lower case; empty for all.
    pub(crate) search: String,
    /// Only those of the site with this id, at any depth.
    pub(crate) site: Option<String>,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

/// What a screen shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Screen {
    Now {
        /// How much of the past the charts show, in seconds.
        span_s: f64,
    },
    Rows(Rows),
    One {
        kind: Kind,
        id: String,
    },
    Box,
}

/// The parameters of a request.
#[derive(Debug)]
pub(crate) struct Parameters<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    pub(crate) fn new(query: Option<&'a str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }

    fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, String> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let number = text.parse().map_err(|_| format!("{name} is a whole number\n"))?;
        if number > most { Err(format!("{name} is at most {most}\n")) } else { Ok(number) }
    }

    fn kind(&self) -> Result<Kind, String> {
        match self.get("kind").unwrap_or("subscribers") {
            "subscribers" => Ok(Kind::Subscribers),
            "sites" => Ok(Kind::Sites),
            "hosts" => Ok(Kind::Hosts),
            _ => Err("kind is subscribers, sites or hosts\n".into()),
        }
    }

    fn text(&self, name: &str, most: usize) -> Result<Option<String>, String> {
        match self.get(name) {
            Some(text) if text.chars().count() > most => {
                Err(format!("{name} has at most {most} characters\n"))
            }
            text => Ok(text.filter(|text| !text.is_empty()).map(str::to_owned)),
        }
    }

    /// Which rows.
    ///
    /// # Errors
    /// A sentence that says which values there are.
    pub(crate) fn rows(&self) -> Result<Rows, String> {
        let sort = self.get("sort").unwrap_or("quality");
        let (name, of) = match (sort.strip_suffix("_down"), sort.strip_suffix("_up")) {
            (Some(name), _) => (name, Of::Down),
            (_, Some(name)) => (name, Of::Up),
            _ => (sort, Of::Both),
        };
        let known = COLUMNS
            .iter()
            .find(|(column, _, has_ways)| *column == name && (*has_ways || of == Of::Both));
        let Some((_, column, _)) = known else {
            let names =
                COLUMNS.map(
                    |(name, _, has_ways)| {
                        if has_ways { format!("{name}[_down|_up]") } else { name.to_owned() }
                    },
                );
            return Err(format!("sort is one of {}\n", names.join(", ")));
        };
        let descending = match self.get("desc") {
            None | Some("1") => true,
            Some("0") => false,
            Some(_) => return Err("desc is 1 or 0\n".into()),
        };
        Ok(Rows {
            kind: self.kind()?,
            column: *column,
            of,
            descending,
            search: self.text("search", SEARCH_MAX)?.unwrap_or_default().to_lowercase(),
            site: self.text("site", ID_MAX)?,
            offset: self.number("offset", 0, u32::MAX as usize)?,
            limit: self.number("limit", 50, ROWS_MAX)?,
        })
    }

    /// About whom.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn one(&self) -> Result<(Kind, String), String> {
        let id = self.text("id", ID_MAX)?.ok_or("id is needed: that of a row of /api/rows\n")?;
        Ok((self.kind()?, id))
    }

    /// Which screen.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn screen(&self) -> Result<Screen, String> {
        match self.get("view").unwrap_or("now") {
            "now" => Ok(Screen::Now { span_s: self.number("span", 300, 3600)? as f64 }),
            "rows" => self.rows().map(Screen::Rows),
            "one" => self.one().map(|(kind, id)| Screen::One { kind, id }),
            "box" => Ok(Screen::Box),
            _ => Err("view is now, rows, one or box\n".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(query: &str) -> Result<Rows, String> {
        Parameters::new(Some(query)).rows()
    }

    #[test]
    fn the_worst_come_first_unless_another_order_is_asked_for() {
        let default = rows("").unwrap();
        assert_eq!((default.kind, default.column), (Kind::Subscribers, Column::Quality));
        assert!(default.descending);
        let asked = rows("kind=sites&sort=delay_down&desc=0&search=Caf%C3%89+1&offset=40&limit=20")
            .unwrap();
        assert_eq!((asked.kind, asked.column, asked.of), (Kind::Sites, Column::Delay, Of::Down));
        assert_eq!((asked.offset, asked.limit, asked.descending), (40, 20, false));
        assert_eq!(asked.search, "café 1");
    }

    #[test]
    fn a_wrong_value_is_answered_with_the_right_ones() {
        for (query, said) in [
            ("sort=colour", "sort is one of name, class"),
            ("sort=name_up", "sort is one of"),
            ("kind=cats", "kind is subscribers, sites or hosts"),
            ("limit=201", "limit is at most 200"),
            ("offset=-1", "offset is a whole number"),
            ("desc=yes", "desc is 1 or 0"),
        ] {
            assert!(rows(query).unwrap_err().starts_with(said), "{query}");
        }
        assert!(rows(&format!("search={}", "x".repeat(101))).is_err());
        assert!(Parameters::new(Some("view=one")).screen().is_err());
        let one = Parameters::new(Some("view=one&id=1%3a10")).screen();
        assert_eq!(one, Ok(Screen::One { kind: Kind::Subscribers, id: "1:10".into() }));
    }

    proptest! {
        #[test]
        fn any_query_is_answered(query: String, known in "(view|sort|id|span)=[a-z0-9%_]{0,12}") {
            for query in [query, known] {
                let parameters = Parameters::new(Some(&query));
                let _ = (parameters.rows(), parameters.one(), parameters.screen());
            }
        }
    }
}

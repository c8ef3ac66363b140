//! Files and APIs with a mapping: CSV, JSON, any JSON API over HTTP, NetBox.
//!
//! The mapping is read again each time, so a changed one counts from the next sync on.

use crate::source::{Gathered, Source};
use narrows_directory::{Note, Report};
use narrows_sources::files::{self, Format, Main};
use narrows_sources::http::{self, Pace};
use narrows_sources::{Converted, Lists, Mapping, SourceError, convert, netbox};
use narrows_units::counted;
use std::io;
use std::path::{Path, PathBuf};

/// Where the records are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Records {
    /// In files of a format. The one here is for lists that name none; `-` is standard input.
    Files {
        /// The format of all of them.
        format: Format,
        /// The file.
        main: Option<PathBuf>,
        /// The mapping.
        mapping: PathBuf,
    },
    /// At the API that the mapping describes.
    Http {
        /// The mapping.
        mapping: PathBuf,
        /// The file with the token, instead of the mapping's.
        token_file: Option<PathBuf>,
    },
    /// In NetBox.
    Netbox {
        /// Its address, as `https://netbox.example.net`.
        url: String,
        /// The file with the token.
        token_file: PathBuf,
        /// A mapping instead of the built-in one.
        mapping: Option<PathBuf>,
    },
}

impl Source for Records {
    fn name(&self) -> &'static str {
        match self {
            Self::Files { format: Format::Csv, .. } => "csv",
            Self::Files { format: Format::Json, .. } => "json",
            Self::Http { .. } => "http",
            Self::Netbox { .. } => "netbox",
        }
    }

    fn read(&mut self) -> anyhow::Result<Gathered> {
        let (mapping, lists) = self.load()?;
        Ok(gathered(convert(&mapping, &lists)?))
    }
}

impl Records {
    fn load(&self) -> Result<(Mapping, Lists), SourceError> {
        match self {
            Self::Files { format, main, mapping: file } => {
                let mapping = read_mapping(file)?;
                let text = main.as_deref().map(read).transpose()?;
                let title = main.as_deref().map(title).unwrap_or_default();
                let main = text.as_ref().map(|text| Main { title: &title, text });
                let lists = files::load(&mapping, *format, main.as_ref(), folder(file))?;
                Ok((mapping, lists))
            }
            Self::Http { mapping: file, token_file } => {
                let mapping = read_mapping(file)?;
                let token_file = token_file.as_deref();
                let lists = http::load(&mapping, folder(file), token_file, &Pace::default())?;
                Ok((mapping, lists))
            }
            Self::Netbox { url, token_file, mapping: file } => {
                let mapping = match file {
                    Some(file) => netbox::ask_at(read_mapping(file)?, url)?,
                    None => netbox::mapping(url)?,
                };
                let folder = file.as_deref().map_or(Path::new(""), folder);
                let lists = http::load(&mapping, folder, Some(token_file), &Pace::default())?;
                Ok((mapping, lists))
            }
        }
    }
}

fn gathered(Converted { directory, faults, notes }: Converted) -> Gathered {
    let summary = format!(
        "{} at {}",
        counted(directory.subscribers.len(), "subscriber"),
        counted(directory.sites.len(), "site")
    );
    let mut report = Report::default();
    report.faults.extend(faults.kept().iter().map(ToString::to_string));
    let more = faults.count() - faults.kept().len();
    if more > 0 {
        report.faults.push(format!("{more} more faults of this kind and others"));
    }
    let note = |what| Note { what, count: 1, example: String::new() };
    report.notes.extend(notes.into_iter().map(note));
    Gathered { directory, summary, report }
}

fn read_mapping(path: &Path) -> Result<Mapping, SourceError> {
    let text = files::read(path)?;
    let title = path.display();
    let text = String::from_utf8(text);
    let text = text.map_err(|_| SourceError::Mapping(format!("{title} is not UTF-8")))?;
    Mapping::parse(&text).map_err(|error| match error {
        SourceError::Mapping(why) => SourceError::Mapping(format!("{title}, {why}")),
        other => other,
    })
}

/// The folder of a mapping, from which names in it start.
fn folder(mapping: &Path) -> &Path {
    mapping.parent().unwrap_or(Path::new(""))
}

fn read(path: &Path) -> Result<Vec<u8>, SourceError> {
    if path == Path::new("-") {
        return files::read_all(&title(path), io::stdin().lock());
    }
    files::read(path)
}

fn title(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

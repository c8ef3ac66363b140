//! The documentation is consistent: links have targets, and the book has every page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every page, by its path in the repository.
fn pages() -> BTreeMap<PathBuf, String> {
    let root = root();
    let folders = [root.clone(), root.join("docs"), root.join("examples")];
    let files = folders.iter().flat_map(|folder| folder.read_dir().unwrap());
    let paths = files.map(|file| file.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|it| it == "md"));
    pages.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Without code blocks, where links and headings do not count.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// The targets of the links in `prose`, as written.
fn links(prose: &str) -> Vec<&str> {
    let ends = prose.split("](").skip(1);
    ends.filter_map(|rest| rest.split_once(')').map(|(link, _)| link)).collect()
}

/// A heading as links refer to it, if it is unique on the page.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Only the text of a link.
    while let Some((before, link)) = rest.split_once('[') {
        let (shown, target) = link.split_once("](").unwrap_or((link, ")"));
        text.push_str(before);
        text.push_str(shown);
        rest = target.split_once(')').map_or("", |(_, behind)| behind);
    }
    text.push_str(rest);
    let kept = text.trim().chars().filter(|it| it.is_alphanumeric() || "-_ ".contains(*it));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

fn anchors(prose: &str) -> Vec<String> {
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_link_leads_to_a_page_and_a_heading_that_are_there() {
    let pages = pages();
    let mut links_seen = 0;
    for (path, page) in &pages {
        for link in links(&prose(page)) {
            if link.contains("://") {
                continue;
            }
            links_seen += 1;
            let place = path.strip_prefix(root()).unwrap().display();
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let target = target.canonicalize();
            let target = target.unwrap_or_else(|_| panic!("{place}: {link:?} leads nowhere"));
            if let Some(page) = pages.get(&target).filter(|_| !heading.is_empty()) {
                let is_there = anchors(&prose(page)).iter().any(|it| it == heading);
                assert!(is_there, "{place}: {link:?} leads to no heading");
            }
        }
    }
    assert!(links_seen > 100, "only {links_seen} links were found");
}

#[test]
fn the_front_page_leads_to_every_page() {
    // The book's own table of contents and first page, and a sketch that the page's makers read.
    const APART: [&str; 3] = ["SUMMARY.md", "introduction.md", "page-design.md"];
    let pages = pages();
    let docs = root().join("docs");
    let front = &pages[&root().join("README.md")];
    let front = links(front);
    let missing = pages.keys().filter_map(|path| path.strip_prefix(&docs).ok()?.to_str());
    let missing = missing.filter(|name| {
        let link = format!("docs/{name}");
        !APART.contains(name) && !front.iter().any(|one| one.split('#').next() == Some(&*link))
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new(), "README.md has no link to these");
}

#[test]
fn the_book_has_every_page_of_its_folder() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed = links(&summary);
    for path in pages().keys().filter(|path| path.parent().unwrap().ends_with("docs")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || listed.contains(&name), "SUMMARY.md does not list {name}");
    }
}

#[test]
fn the_layers_have_every_crate() {
    let text = &pages()[&root().join("docs/architecture.md")];
    let (_, layers) = text.split_once("## The layers").unwrap();
    let layers = layers.split("```").nth(1).unwrap();
    let names: Vec<_> = layers.lines().flat_map(|line| line.split_whitespace()).collect();
    let folders = root().join("crates").read_dir().unwrap().map(|folder| folder.unwrap().path());
    // One is a crate itself: the program.
    let folders = folders.filter(|folder| !folder.join("Cargo.toml").exists());
    for name in folders.flat_map(|folder| folder.read_dir().unwrap()) {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&&*name), "docs/architecture.md does not say what {name} is for");
    }
}

#[test]
fn an_anchor_is_made_of_a_heading_as_readers_make_it() {
    assert_eq!(anchor(" What does `cake` cost?"), "what-does-cake-cost");
    assert_eq!(anchor(" FlowValve, and one lock"), "flowvalve-and-one-lock");
    assert_eq!(anchor(" See [tc](tc.md#htb) now"), "see-tc-now");
    assert_eq!(anchor(" fq_codel and codel"), "fq_codel-and-codel");
}

/// The first table says of each figure what became of it, and leads to all sections that have one.
#[test]
fn every_figure_of_a_paper_is_in_the_table_of_results() {
    let page = std::fs::read_to_string(root().join("docs/reproduction.md")).unwrap();
    let papers = ["mq-cake", "FlowBundler", "FlowValve", "XDP"];
    let states = ["**real packets**", "**simulated**", "**differs**", "**not possible here**"];
    let rows: Vec<Vec<&str>> = page
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())
        .skip_while(|cells| {
            cells.as_slice() != ["paper", "figure", "what it shows", "state", "where"]
        })
        .skip(2)
        .take_while(|cells| cells.len() == 5)
        .collect();
    assert!(rows.len() > 40, "the table has {} rows", rows.len());
    let mut linked = Vec::new();
    for cells in &rows {
        assert!(papers.contains(&cells[0]), "{cells:?}");
        assert!(states.iter().any(|state| cells[3].starts_with(state)), "{cells:?}");
        let targets = links(cells[4]);
        assert!(!targets.is_empty(), "{cells:?} leads nowhere");
        linked.extend(targets);
    }
    let mut section = String::new();
    let mut figures = 0;
    for line in page.lines() {
        if line.starts_with('#') {
            section = format!("#{}", anchor(line.trim_start_matches('#')));
        }
        let after = line.strip_prefix("after ").unwrap_or_default();
        if papers.iter().any(|paper| after.starts_with(paper)) && after.contains("Fig.") {
            figures += 1;
            assert!(linked.contains(&section.as_str()), "no row leads to {section}: {line}");
        }
    }
    assert!(figures > 20, "only {figures} results name a figure");
}

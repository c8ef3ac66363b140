//! The web page. Its files are part of the program, so that it works offline.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) content: &'static str,
}

/// All files. `make page` builds them from `web/`.
pub(crate) const FILES: [File; 3] = [
    File {
        path: "/",
        kind: "text/html; charset=utf-8",
        content: include_str!("../assets/index.html"),
    },
    File {
        path: "/page.js",
        kind: "text/javascript; charset=utf-8",
        content: include_str!("../assets/page.js"),
    },
    File {
        path: "/page.css",
        kind: "text/css; charset=utf-8",
        content: include_str!("../assets/page.css"),
    },
];

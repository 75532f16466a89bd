//! The page itself: three files, embedded when the program was built; and the page of reports, which is never served.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    pub(crate) content_type: &'static str,
    pub(crate) bytes: &'static [u8],
}

#[cfg(front_end)]
const FILES: [(&str, Asset); 3] = [
    (
        "",
        Asset {
            content_type: "text/html; charset=utf-8",
            bytes: include_bytes!(concat!(env!("FRONT_END_DIRECTORY"), "/index.html")),
        },
    ),
    (
        "app.js",
        Asset {
            content_type: "text/javascript; charset=utf-8",
            bytes: include_bytes!(concat!(env!("FRONT_END_DIRECTORY"), "/app.js")),
        },
    ),
    (
        "app.css",
        Asset {
            content_type: "text/css; charset=utf-8",
            bytes: include_bytes!(concat!(env!("FRONT_END_DIRECTORY"), "/app.css")),
        },
    ),
];

#[cfg(not(front_end))]
const FILES: [(&str, Asset); 0] = [];

/// The page of reports, with room for their contents.
#[cfg(front_end)]
pub(crate) const REPORT_PAGE: Option<&str> = Some(include_str!(concat!(env!("FRONT_END_DIRECTORY"), "/report.html")));

#[cfg(not(front_end))]
pub(crate) const REPORT_PAGE: Option<&str> = None;

/// Whether the page was built into this program.
pub const HAS_FRONT_END: bool = cfg!(front_end);

/// Why it was not, as a clause.
pub const NO_FRONT_END: &str = match option_env!("NO_FRONT_END") {
    Some(reason) => reason,
    None => "this program was built without its page",
};

/// The file with a name; the empty name is the page.
pub(crate) fn find(name: &str) -> Option<Asset> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, asset)| *asset)
}

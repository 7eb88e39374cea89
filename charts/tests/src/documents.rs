//! The documents that a chart renders.

use serde_json::Value;

/// One rendered object.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// As rendered, with comments.
    pub(crate) text: String,
    pub(crate) value: Value,
}

impl Document {
    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap()
    }

    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap()
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }

    /// `apiVersion`, as in `apps/v1`.
    pub(crate) fn api_version(&self) -> &str {
        self.value["apiVersion"].as_str().unwrap()
    }
}

/// The objects in the output of `helm template`.
pub(crate) fn parse(rendered: &str) -> Vec<Document> {
    let texts = format!("\n{rendered}\n");
    let texts = texts.split("\n---\n").map(str::trim).filter(|text| !text.is_empty());
    let documents = texts.map(|text| {
        let value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        Document { text: text.to_owned(), value }
    });
    // A template that renders nothing but comments is no object.
    documents.filter(|document| !document.value.is_null()).collect()
}

/// The only object of a kind.
pub(crate) fn one<'a>(documents: &'a [Document], kind: &str) -> &'a Document {
    let mut found = documents.iter().filter(|document| document.kind() == kind);
    let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    first
}

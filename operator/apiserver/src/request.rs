//! What a request asks for.

use std::collections::BTreeMap;

use http::{Method, request::Parts};

use crate::store::Refusal;

/// The verbs of role-based access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object.
    Get,
    /// Many.
    List,
    /// Changes of many.
    Watch,
    /// A new one.
    Create,
    /// A whole one in place of another.
    Update,
    /// A part of one.
    Patch,
    /// None any more.
    Delete,
}

impl Verb {
    /// As roles write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// A request, as access control sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    /// What to do.
    pub verb: Verb,
    /// API group, empty for the first one.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Plural name of the kind.
    pub resource: String,
    /// `status`, `log`.
    pub subresource: Option<String>,
    /// The namespace, `None` for all.
    pub namespace: Option<String>,
    /// The object, `None` for many.
    pub name: Option<String>,
    /// Nothing is to be kept.
    pub dry_run: bool,
}

/// A request that was read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub asked: Asked,
    pub query: BTreeMap<String, String>,
    /// Only metadata is wanted.
    pub metadata_only: bool,
    pub content_type: String,
}

impl Read {
    pub(crate) fn of(parts: &Parts) -> Result<Self, Refusal> {
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let query = query(parts.uri.query().unwrap_or_default());
        let asked = asked(&parts.method, parts.uri.path(), &query)
            .ok_or_else(|| Refusal::not_found(&format!("{} {}", parts.method, parts.uri)))?;
        Ok(Self {
            asked,
            metadata_only: header(http::header::ACCEPT).contains("as=PartialObjectMetadata"),
            content_type: header(http::header::CONTENT_TYPE).to_owned(),
            query,
        })
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.query.get(name).is_some_and(|value| value == "true")
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }
}

fn asked(method: &Method, path: &str, query: &BTreeMap<String, String>) -> Option<Asked> {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
    let group = match parts.next()?.as_str() {
        "api" => String::new(),
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let mut rest = parts.collect::<Vec<_>>().into_iter();
    let mut resource = rest.next()?;
    let mut namespace = None;
    if resource == "namespaces" && rest.len() > 1 {
        namespace = rest.next();
        resource = rest.next()?;
    }
    let (name, subresource) = (rest.next(), rest.next());
    let watch = query.get("watch").is_some_and(|value| value == "true");
    let verb = match (method.as_str(), &name) {
        ("GET", None) if watch => Verb::Watch,
        ("GET", None) => Verb::List,
        ("GET", Some(_)) => Verb::Get,
        ("POST", None) => Verb::Create,
        ("PUT", Some(_)) => Verb::Update,
        ("PATCH", Some(_)) => Verb::Patch,
        ("DELETE", Some(_)) => Verb::Delete,
        _ => return None,
    };
    let dry_run = query.get("dryRun").is_some_and(|value| value == "All");
    Some(Asked { verb, group, version, resource, subresource, namespace, name, dry_run })
}

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// Percent and plus signs, as in forms.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (digit(rest.next()).unwrap_or(0), digit(rest.next()).unwrap_or(0));
                u8::try_from(high * 16 + low).unwrap_or_default()
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

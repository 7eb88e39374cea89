//! Which contents of Secrets a worker started with.
//!
//! A worker reads its credentials once. Its pod carries a fingerprint of each Secret, so that a pod whose credentials have changed
//! since is told from one that has the newest.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_crds::names;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Number of bytes of a fingerprint.
const BYTES: usize = 8;

/// Secrets by name, with the keys that are used.
pub type SecretKeys = BTreeMap<String, BTreeSet<String>>;

/// A fingerprint for each Secret, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprints(BTreeMap<String, String>);

impl Fingerprints {
    /// The fingerprints that a pod, or a pod template, carries.
    #[must_use]
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|annotations| annotations.get(names::ANNOTATION_SECRETS));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The annotation for them; none when there is nothing to tell.
    #[must_use]
    pub fn annotation(&self) -> Option<(String, String)> {
        let text = serde_json::to_string(self).ok().filter(|_| !self.0.is_empty())?;
        Some((names::ANNOTATION_SECRETS.to_owned(), text))
    }

    /// Takes up a Secret.
    pub fn insert(&mut self, name: &str, fingerprint: String) {
        self.0.insert(name.to_owned(), fingerprint);
    }

    /// For the Secrets in `wanted`: what was `seen` now, else what was known before.
    #[must_use]
    pub fn newest(wanted: &SecretKeys, seen: &Self, before: &Self) -> Self {
        let one = |name: &String| Some((name.clone(), seen.0.get(name).or_else(|| before.0.get(name))?.clone()));
        Self(wanted.keys().filter_map(one).collect())
    }

    /// Secrets that are not as in `newest`.
    pub fn outdated<'a>(&'a self, newest: &'a Self) -> impl Iterator<Item = &'a str> {
        newest.0.iter().filter(|(name, now)| self.0.get(*name) != Some(now)).map(|(name, _)| name.as_str())
    }
}

/// The fingerprint of the keys that are used. `None`: a key is missing, so that no worker could start with it.
///
/// Pods are read by more people than Secrets are. The uid of a Secret is random and as hard to read as the Secret itself: with it in the
/// digest nobody can try passwords against a fingerprint.
#[must_use]
pub fn fingerprint(secret: &Secret, keys: &BTreeSet<String>) -> Option<String> {
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(bytes);
    };
    part(secret.metadata.uid.as_deref()?.as_bytes());
    for key in keys {
        let value = secret.data.as_ref()?.get(key)?;
        part(key.as_bytes());
        part(&value.0);
    }
    let digest = digest.finalize();
    Some(hex::encode(digest.get(..BYTES)?))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(uid: &str, data: &[(&str, &str)]) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.uid = Some(uid.to_owned());
        secret.data =
            Some(data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect());
        secret
    }

    fn keys(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn only_the_keys_that_are_used_make_the_fingerprint() {
        let of = |data: &[(&str, &str)]| fingerprint(&secret("1", data), &keys(&["password", "username"]));
        let before = of(&[("username", "a"), ("password", "b")]);
        assert!(before.is_some());
        assert_eq!(before, of(&[("username", "a"), ("password", "b"), ("note", "rotated by hand")]));
        assert_ne!(before, of(&[("username", "a"), ("password", "c")]));
        assert_ne!(before, of(&[("username", "ab"), ("password", "")]), "where a value ends counts");
    }

    #[test]
    fn equal_passwords_in_two_secrets_do_not_show() {
        let of = |uid: &str| fingerprint(&secret(uid, &[("password", "b")]), &keys(&["password"]));
        assert_ne!(of("1"), of("2"));
    }

    #[test]
    fn a_secret_without_a_key_that_is_needed_has_no_fingerprint() {
        assert_eq!(fingerprint(&secret("1", &[("username", "a")]), &keys(&["password", "username"])), None);
    }

    #[test]
    fn what_cannot_be_read_now_is_as_it_was() {
        let prints = |list: &[(&str, &str)]| {
            Fingerprints(list.iter().map(|(name, print)| ((*name).to_owned(), (*print).to_owned())).collect())
        };
        let wanted = ["ca", "user"].map(|name| (name.to_owned(), keys(&["k"]))).into();
        let before = prints(&[("ca", "1"), ("user", "1"), ("unused", "1")]);
        let newest = Fingerprints::newest(&wanted, &prints(&[("user", "2")]), &before);
        assert_eq!(newest, prints(&[("ca", "1"), ("user", "2")]));
        assert_eq!(before.outdated(&newest).collect::<Vec<_>>(), ["user"]);
        let annotations = newest.annotation().into_iter().collect();
        assert_eq!(Fingerprints::read(Some(&annotations)), newest);
        assert_eq!(Fingerprints::default().annotation(), None);
    }
}

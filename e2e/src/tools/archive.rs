//! Container images of one layer, written as OCI archives: enough for programs that are a single static file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// A file in an image.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it comes from.
    pub source: PathBuf,
    /// Where it goes, absolute.
    pub target: &'static str,
}

/// Writes an image called `name` (with a tag) that starts `entrypoint`.
///
/// # Errors
/// When a source cannot be read or the archive cannot be written.
pub fn image_archive(path: &Path, name: &str, entrypoint: &str, entries: &[Entry]) -> io::Result<()> {
    let layer = layer(entries)?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": [entrypoint], "Env": ["PATH=/bin:/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    })
    .to_string();
    let describe = |kind: &str, blob: &[u8]| json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest(blob), "size": blob.len()});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": describe("config.v1+json", config.as_bytes()),
        "layers": [describe("layer.v1.tar", &layer)],
    })
    .to_string();
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let mut described = describe("manifest.v1+json", manifest.as_bytes());
    if let Some(fields) = described.as_object_mut() {
        fields.insert(
            "annotations".to_owned(),
            json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}),
        );
    }
    let index = json!({"schemaVersion": 2, "manifests": [described]}).to_string();

    let mut archive = Builder::new(io::BufWriter::new(std::fs::File::create(path)?));
    file(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    file(&mut archive, "index.json", index.as_bytes(), 0o644)?;
    for blob in [&layer, config.as_bytes(), manifest.as_bytes()] {
        let name = digest(blob).replace("sha256:", "blobs/sha256/");
        file(&mut archive, &name, blob, 0o644)?;
    }
    archive.into_inner()?.flush()
}

fn layer(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    let mut folders = vec!["tmp".to_owned()];
    folder(&mut layer, "tmp", 0o1777)?;
    for entry in entries {
        let target = entry.target.trim_start_matches('/');
        for (at, _) in target.match_indices('/') {
            let parent = target.get(..at).unwrap_or_default().to_owned();
            if !folders.contains(&parent) {
                folder(&mut layer, &parent, 0o755)?;
                folders.push(parent);
            }
        }
        file(&mut layer, target, &std::fs::read(&entry.source)?, 0o755)?;
    }
    layer.into_inner()
}

fn folder(archive: &mut Builder<impl Write>, path: &str, mode: u32) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Directory);
    header.set_mode(mode);
    header.set_size(0);
    archive.append_data(&mut header, path, io::empty())
}

fn file(archive: &mut Builder<impl Write>, path: &str, content: &[u8], mode: u32) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, path, content)
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(blob)))
}

/// The machine's architecture as Go and OCI spell it.
fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

#[cfg(test)]
mod tests {
    use super::{Entry, digest, image_archive};
    use std::collections::HashMap;
    use std::io::Read;

    #[test]
    fn every_blob_is_where_its_digest_says() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program");
        std::fs::write(&source, "#!").unwrap();
        let path = folder.path().join("image.tar");
        image_archive(&path, "example.org/tool:1", "/usr/bin/tool", &[Entry { source, target: "/usr/bin/tool" }])
            .unwrap();

        let mut archive = tar::Archive::new(std::fs::File::open(&path).unwrap());
        let files: HashMap<String, Vec<u8>> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().display().to_string(), content)
            })
            .collect();
        for (name, content) in files.iter().filter(|(name, _)| name.starts_with("blobs/")) {
            assert_eq!(name.replace("blobs/sha256/", "sha256:"), digest(content));
        }
        let index: serde_json::Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "example.org/tool:1");
        let manifest = index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
        let manifest: serde_json::Value = serde_json::from_slice(&files[&manifest]).unwrap();
        let layer = &files[&manifest["layers"][0]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/")];
        let names: Vec<_> = tar::Archive::new(layer.as_slice())
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["tmp", "usr", "usr/bin", "usr/bin/tool"]);
    }
}

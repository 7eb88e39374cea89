//! `values.yaml` is the source: its comments become the table in the README and the descriptions in the schema.

use serde_json::Value;

use crate::{
    committed,
    helm::{Chart, RELEASE, template},
};

/// A documented value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Documented {
    /// `image.tag`, in parts.
    pub(crate) path: Vec<String>,
    pub(crate) meaning: String,
    default: Value,
}

/// The values with a comment that starts with `# --`, in the order of the file. What is below such a value belongs to it.
pub(crate) fn documented(yaml: &str) -> Vec<Documented> {
    let values: Value = serde_saphyr::from_str(yaml).unwrap();
    let mut found: Vec<Documented> = Vec::new();
    let mut parents: Vec<(usize, String)> = Vec::new();
    let mut meaning: Option<String> = None;
    for line in yaml.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(start) = text.strip_prefix("# -- ") {
            meaning = Some(start.to_owned());
        } else if let (Some(meaning), Some(more)) = (&mut meaning, text.strip_prefix("# ")) {
            meaning.push(' ');
            meaning.push_str(more);
        } else if let Some((key, _)) = text.split_once(':').filter(|(key, _)| is_key(key)) {
            parents.retain(|(of, _)| *of < indent);
            parents.push((indent, key.to_owned()));
            let path: Vec<String> = parents.iter().map(|(_, key)| key.clone()).collect();
            if let Some(meaning) = meaning.take() {
                let default = values.pointer(&format!("/{}", path.join("/"))).unwrap().clone();
                found.push(Documented { path, meaning, default });
            }
        }
    }
    found
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric())
}

pub(crate) fn of_the_chart() -> Vec<Documented> {
    documented(&Chart::Operator.read("values.yaml"))
}

/// Paths of all values that are not maps with something in them.
fn leaves(value: &Value, path: &[String], found: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                leaves(value, &[path, std::slice::from_ref(key)].concat(), found);
            }
        }
        _ => found.push(path.to_vec()),
    }
}

fn table(values: &[Documented]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let rows = values.iter().map(|value| {
        let default = serde_json::to_string(&value.default).unwrap();
        format!("| `{}` | `{}` | {} |\n", value.path.join("."), cell(&default), cell(&value.meaning))
    });
    format!("| value | default | meaning |\n|---|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn the_readme_has_a_table_of_all_values() {
    const BEGIN: &str = "<!-- values: begin -->\n";
    const END: &str = "<!-- values: end -->";
    let readme = Chart::Operator.read("README.md");
    let (before, rest) = readme.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let want = format!("{before}{BEGIN}{}{END}{after}", table(&of_the_chart()));
    committed::check(&Chart::Operator.path().join("README.md"), &want);
}

#[test]
fn every_value_is_documented() {
    let values: Value = serde_saphyr::from_str(&Chart::Operator.read("values.yaml")).unwrap();
    let mut found = Vec::new();
    leaves(&values, &[], &mut found);
    let documented = of_the_chart();
    for leaf in found {
        let has_meaning = documented.iter().any(|value| leaf.starts_with(&value.path));
        assert!(has_meaning, "{} has no comment that starts with `# --`", leaf.join("."));
    }
}

/// Words of templates that name values: `.Values.a.b`.
fn used(template: &str) -> Vec<String> {
    let words = template.split(".Values.").skip(1);
    words.map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect()).collect()
}

#[test]
fn every_value_is_used_by_a_template_and_templates_use_no_other() {
    let folder = std::fs::read_dir(Chart::Operator.path().join("templates")).unwrap();
    let texts = folder.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let used: Vec<String> = texts.flat_map(|text| used(&text)).collect();
    let values: Value = serde_saphyr::from_str(&Chart::Operator.read("values.yaml")).unwrap();
    for name in &used {
        assert!(values.pointer(&format!("/{}", name.replace('.', "/"))).is_some(), "templates use {name}");
    }
    for value in of_the_chart() {
        let path = value.path.join(".");
        // A template may use the map a value is in.
        assert!(used.iter().any(|name| path == *name || path.starts_with(&format!("{name}."))), "nothing uses {path}");
    }
}

#[test]
fn a_comment_of_several_lines_belongs_to_the_next_key() {
    let yaml = "
# A remark.
a:
  # -- First
  # and second line.
  b: 1
  c: 2
# -- A map.
d: {e: [x, 'y|z']}
";
    let values = documented(yaml);
    let paths: Vec<String> = values.iter().map(|value| value.path.join(".")).collect();
    assert_eq!(paths, ["a.b", "d"]);
    assert_eq!(values[0].meaning, "First and second line.");
    assert_eq!(
        table(&values),
        "| value | default | meaning |\n|---|---|---|\n| `a.b` | `1` | First and second line. |\n| `d` | `{\"e\":[\"x\",\"y\\|z\"]}` | A map. |\n"
    );
}

#[test]
fn the_defaults_written_out_render_the_same_as_no_values() {
    let all = template(Chart::Operator, RELEASE, &Chart::Operator.read("values.yaml")).unwrap();
    assert_eq!(all, template(Chart::Operator, RELEASE, "{}").unwrap());
}

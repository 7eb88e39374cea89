//! The machine and the checkout that something is measured on.

use std::fs;

use super::result::{Machine, Origin};
use crate::command::{self, words};
use crate::paths;

/// What is true of every run of this command.
pub(super) fn origin(quick: bool) -> Result<Origin, command::Error> {
    let date = command::run(&mut words("date", ["-u", "+%Y-%m-%d %H:%M"]))?;
    let describe = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let revision = command::run(words("git", describe).current_dir(paths::repository()))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let [date, revision] = [date, revision].map(|text| text.trim().to_owned());
    Ok(Origin { date, revision, machine: Machine { cores, cpu }, quick })
}

fn cpu(cpuinfo: &str) -> String {
    let models = cpuinfo.lines().filter_map(|line| line.strip_prefix("model name")?.split_once(':'));
    models.map(|(_, model)| model.trim().to_owned()).next().unwrap_or_else(|| "unknown".to_owned())
}

/// The load average of the last minute.
pub(super) fn load() -> f64 {
    parse_load(&fs::read_to_string("/proc/loadavg").unwrap_or_default())
}

fn parse_load(text: &str) -> f64 {
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{cpu, parse_load};

    #[test]
    fn the_processor_and_the_load_are_what_the_kernel_says() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: AMD EPYC\nprocessor\t: 1\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(cpu(""), "unknown");
        assert!((parse_load("1.25 0.50 0.10 2/345 678\n") - 1.25).abs() < f64::EPSILON);
    }
}

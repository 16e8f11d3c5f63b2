//! The process's own figures, under the names that every Prometheus client uses. Read from `/proc`
//! at each scrape; where there is none, the series are absent.

use std::fs;

use super::registry::{Observer, Registry};

/// Clock ticks a second in `/proc`: `USER_HZ`, 100 on every supported Linux architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads one figure.
type Read = fn() -> Option<f64>;

/// Adds the figures that can be read here; they are exported while the observers are kept.
pub fn register(registry: &Registry) -> Vec<Observer> {
    let figures: [(&str, Read); 6] = [
        ("process_cpu_seconds_total", cpu_seconds),
        ("process_resident_memory_bytes", || {
            status("VmRSS:").map(|kib| kib * 1024.0)
        }),
        ("process_open_fds", || {
            Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
        }),
        ("process_max_fds", max_fds),
        ("process_threads", || status("Threads:")),
        ("process_start_time_seconds", start_seconds),
    ];
    let readable = figures.into_iter().filter(|(_, read)| read().is_some());
    readable
        .map(|(name, read)| registry.observe(name, &[], move || read().unwrap_or(f64::NAN)))
        .collect()
}

/// Field `index` of `/proc/self/stat`, counted from 1 as proc(5) does.
fn stat(index: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name in parentheses, and may hold spaces.
    let (_, after_name) = text.rsplit_once(") ")?;
    after_name.split(' ').nth(index - 3)?.parse().ok()
}

fn status(key: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(14)? + stat(15)?) / TICKS_PER_SECOND)
}

fn max_fds() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn start_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = text
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .parse()
        .ok()?;
    Some(boot + stat(22)? / TICKS_PER_SECOND)
}

/// The bytes of memory that the machine has, or its control group if that gives less; `None` where
/// neither says.
pub fn memory_limit() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    });
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_readable_on_linux() {
        let registry = Registry::default();
        let observers = register(&registry);
        assert_eq!(observers.len(), 6, "{}", registry.render());
        assert!(status("Threads:").is_some_and(|threads| threads >= 1.0));
        assert!(start_seconds().is_some_and(|start| start > 1.6e9));
    }
}

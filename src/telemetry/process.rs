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
            Some(figure("/proc/self/status", "VmRSS:")? * 1024.0)
        }),
        ("process_open_fds", || {
            Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
        }),
        ("process_max_fds", || {
            figure("/proc/self/limits", "Max open files")
        }),
        ("process_threads", || {
            figure("/proc/self/status", "Threads:")
        }),
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

/// The number behind `key`, which begins a line of a file.
fn figure(path: &str, key: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(14)? + stat(15)?) / TICKS_PER_SECOND)
}

fn start_seconds() -> Option<f64> {
    Some(figure("/proc/stat", "btime ")? + stat(22)? / TICKS_PER_SECOND)
}

/// The bytes of memory that the machine has, or its control group if that gives less; `None` where
/// neither says.
pub fn memory_limit() -> Option<u64> {
    let machine = figure("/proc/meminfo", "MemTotal:").map(|kib| kib as u64 * 1024);
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok());
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
        let threads = figure("/proc/self/status", "Threads:");
        assert!(threads.is_some_and(|threads| threads >= 1.0));
        assert!(start_seconds().is_some_and(|start| start > 1.6e9));
    }
}

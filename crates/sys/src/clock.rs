//! Time: the monotonic clock and the processor's counter scaled to it.
//!
//! Deadlines are absolute nanoseconds of `CLOCK_MONOTONIC`. Spin loops measure elapsed time with
//! [`ticks_ns`], which costs about 10 ns where the processor has an invariant counter and one
//! vDSO call otherwise.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// `CLOCK_MONOTONIC` in nanoseconds. One vDSO call, about 25 ns.
#[must_use]
pub fn now_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(now_ns) = crate::simulation::now_ns() {
        return now_ns;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Processor time of this thread, in nanoseconds. One system call.
#[must_use]
pub fn thread_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(now_ns) = crate::simulation::now_ns() {
        return now_ns;
    }
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec.cast_unsigned() * 1_000_000_000 + used.tv_nsec.cast_unsigned()
}

/// The deadline `timeout` from now, saturating.
#[must_use]
pub fn deadline_ns(timeout: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// The monotonic time of `instant`, for deadlines; now, if that has passed.
#[must_use]
pub fn instant_ns(instant: Instant) -> u64 {
    deadline_ns(instant.saturating_duration_since(Instant::now()))
}

/// Nanoseconds since an arbitrary start, from the processor's counter.
#[must_use]
#[inline]
pub fn ticks_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(now_ns) = crate::simulation::now_ns() {
        return now_ns;
    }
    SCALE.get_or_init(Scale::measured).ns()
}

/// Measures the counter's rate against the monotonic clock. About 2 ms, once per process; later
/// calls return at once. [`ticks_ns`] calls it when needed; call it earlier to choose the moment.
pub fn calibrate() {
    SCALE.get_or_init(Scale::measured);
}

/// Blocks for this time. One `nanosleep`.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "simulation")]
    if crate::simulation::sleep(duration) {
        return;
    }
    std::thread::sleep(duration);
}

/// Blocks for the shortest time the kernel's timers give. One `nanosleep`.
pub fn nap() {
    sleep(Duration::from_nanos(1));
}

struct Scale {
    /// Nanoseconds per tick as 32.32 fixed point, where the counter can be trusted.
    factor: Option<u64>,
}

static SCALE: OnceLock<Scale> = OnceLock::new();

impl Scale {
    #[cold]
    fn measured() -> Self {
        Self { factor: factor() }
    }

    /// The time by this scale: the first reading, too, which others are compared with.
    #[inline]
    fn ns(&self) -> u64 {
        match self.factor {
            // The product keeps 128 bits: 64-bit ticks times a 32.32 fixed-point factor.
            Some(factor) => ((u128::from(counter()) * u128::from(factor)) >> 32) as u64,
            None => now_ns(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: reading the time stamp counter has no effect on memory; where the kernel forbids it
    // (PR_SET_TSC) `factor` has not offered it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn factor() -> Option<u64> {
    if cfg!(miri) {
        // It has no counter.
        return None;
    }
    // The kernel only uses the counter as its own clock when it is stable on all CPUs.
    let source =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .ok()?;
    if !matches!(
        source.trim(),
        "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page"
    ) {
        return None;
    }
    let sample = || {
        // The tightest of a few bracketed readings: an interrupt between the two clocks would
        // bias the rate.
        (0..8)
            .map(|_| {
                let before = counter();
                let now = now_ns();
                let after = counter();
                (
                    after.wrapping_sub(before),
                    before.wrapping_add(after.wrapping_sub(before) / 2),
                    now,
                )
            })
            .min()
            .map_or((0, 0), |(_, ticks, now)| (ticks, now))
    };
    let (ticks_start, ns_start) = sample();
    while now_ns() < ns_start + 2_000_000 {
        core::hint::spin_loop();
    }
    let (ticks_end, ns_end) = sample();
    let ticks = ticks_end
        .checked_sub(ticks_start)
        .filter(|ticks| *ticks > 0)?;
    u64::try_from((u128::from(ns_end - ns_start) << 32) / u128::from(ticks)).ok()
}

#[cfg(target_arch = "aarch64")]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: CNTVCT_EL0 is readable from user space on Linux and the read has no side effect.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

#[cfg(target_arch = "aarch64")]
fn factor() -> Option<u64> {
    let rate: u64;
    // SAFETY: CNTFRQ_EL0 is readable from user space on Linux and the read has no side effect.
    unsafe { core::arch::asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nomem, nostack)) };
    (rate > 0).then(|| u64::try_from((1_000_000_000u128 << 32) / u128::from(rate)).unwrap_or(0))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn factor() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reading_that_calibrates_has_the_origin_of_all_others() {
        let scale = OnceLock::new();
        let readings = [(); 3].map(|()| scale.get_or_init(Scale::measured).ns());
        assert!(readings.is_sorted());
        assert!(readings[2] - readings[0] < 1_000_000_000, "{readings:?}");
    }

    #[test]
    fn ticks_advance_at_the_rate_of_the_clock() {
        calibrate();
        let (ticks, clock) = (ticks_ns(), now_ns());
        while now_ns() < clock + 20_000_000 {
            core::hint::spin_loop();
        }
        let (ticks, clock) = (ticks_ns() - ticks, now_ns() - clock);
        assert!(
            ticks.abs_diff(clock) < clock / 20,
            "ticks {ticks} clock {clock}"
        );
    }
}

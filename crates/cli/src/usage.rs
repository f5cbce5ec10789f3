//! Another process's usage so far, seen from outside.

use std::io;

/// A process's usage so far, all threads together.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// Context switches of the threads it has now, voluntary and not.
    pub switches: u64,
    /// The switches that were not voluntary. A `sched_yield` that lets another run is one.
    pub involuntary: u64,
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
}

impl Usage {
    /// The usage of process `pid`.
    pub fn of(pid: u32) -> io::Result<Self> {
        let (switches, involuntary) = switches(pid)?;
        Ok(Self {
            switches,
            involuntary,
            cpu_ns: cpu_ns(pid)?,
        })
    }

    /// The usage after `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            // The count of a thread that ended meanwhile is gone.
            switches: self.switches.saturating_sub(before.switches),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            cpu_ns: self.cpu_ns - before.cpu_ns,
        }
    }
}

/// CPU time process `pid` has used, all its threads together, in nanoseconds.
pub fn cpu_ns(pid: u32) -> io::Result<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is valid for a write.
    let error = unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for a write.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// CPU time of process `pid` in user mode and in the kernel, in the kernel's ticks: for shares of
/// what [`cpu_ns`] says.
pub fn ticks(pid: u32) -> io::Result<(u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold anything, also what looks like fields.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut times = fields.split_whitespace().skip(11).map(str::parse);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok((user, system)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Context switches of the threads process `pid` has now: all, and the ones that were not voluntary.
fn switches(pid: u32) -> io::Result<(u64, u64)> {
    let (mut sum, mut involuntary) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = match std::fs::read_to_string(task?.path().join("status")) {
            Ok(status) => status,
            Err(error) if thread_has_ended(&error) => continue,
            Err(error) => return Err(error),
        };
        let counts = status
            .lines()
            .filter_map(|line| line.split_once("_ctxt_switches:"))
            .filter_map(|(kind, count)| Some((kind, count.trim().parse::<u64>().ok()?)));
        for (kind, count) in counts {
            sum += count;
            if kind == "nonvoluntary" {
                involuntary += count;
            }
        }
    }
    Ok((sum, involuntary))
}

/// Whether `error`, of a file below `/proc/PID/task/TID`, says that the thread ended: `ENOENT`
/// from opening the file, `ESRCH` from reading it.
fn thread_has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_sys::clock;

    #[test]
    fn cpu_time_and_switches_of_a_process_are_seen_from_outside() {
        let own = std::process::id();
        let before = cpu_ns(own).unwrap();
        let end = clock::now_ns() + 5_000_000;
        while clock::now_ns() < end {
            core::hint::spin_loop();
        }
        assert!(cpu_ns(own).unwrap() > before);
        let (all, involuntary) = switches(own).unwrap();
        assert!(all > 0 && involuntary <= all);
        assert!(ticks(own).is_ok());
        // Beside threads that end.
        let ending = || (0..500).for_each(|_| std::thread::spawn(|| ()).join().unwrap());
        std::thread::scope(|scope| {
            let enders = [(); 2].map(|()| scope.spawn(ending));
            while !enders
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished)
            {
                assert!(switches(own).unwrap().0 > 0);
            }
        });
        // Above the largest process id there can be.
        assert!(cpu_ns(4_194_305).is_err() && ticks(4_194_305).is_err());
    }
}

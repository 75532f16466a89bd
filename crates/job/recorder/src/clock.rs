//! The two clocks: monotonic time of records, wall time of names and offsets.

/// Nanoseconds of a clock. Reads the vDSO: no system call, errno untouched.
#[inline]
fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC, the time of every record.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME.
pub fn wall_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME)
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
pub fn wall_offset_ns() -> i64 {
    wall_ns().wrapping_sub(monotonic_ns()) as i64
}

/// Seconds that local time is ahead of UTC.
pub fn local_offset_seconds(wall_seconds: i64) -> i64 {
    // SAFETY: plain old data, for which zero is a valid value.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    let known = !unsafe { libc::localtime_r(&wall_seconds, &mut parts) }.is_null();
    if known { parts.tm_gmtoff } else { 0 }
}

/// `YYYYmmddHHMMSS` of a moment, given in seconds of local time.
pub fn compact_date(local_seconds: i64) -> [u8; 14] {
    let (days, second_of_day) = (local_seconds.div_euclid(86_400), local_seconds.rem_euclid(86_400));
    // Years begin in March here, so that the leap day is the last day of a year.
    let shifted_days = days + 719_468;
    let (era, day_of_era) = (shifted_days.div_euclid(146_097), shifted_days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let mut text = [b'0'; 14];
    let mut put = |position: usize, width: usize, mut number: i64| {
        for place in (position..position + width).rev() {
            text[place] = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    put(0, 4, year);
    put(4, 2, month);
    put(6, 2, day);
    put(8, 2, second_of_day / 3600);
    put(10, 2, second_of_day / 60 % 60);
    put(12, 2, second_of_day % 60);
    text
}

#[cfg(test)]
mod tests {
    use super::compact_date;

    #[test]
    fn dates_of_known_moments() {
        for (seconds, text) in [
            (0, b"19700101000000"),
            (951_782_399, b"20000228235959"),
            (951_782_400, b"20000229000000"),
            (1_709_251_199, b"20240229235959"),
            (1_735_689_599, b"20241231235959"),
            (1_735_689_600, b"20250101000000"),
        ] {
            assert_eq!(&compact_date(seconds), text, "{seconds}");
        }
    }
}

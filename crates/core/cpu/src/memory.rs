//! Memory that is far away: prefetching, and huge pages.

/// A cache line of x86-64, in bytes.
const LINE: usize = 64;

/// The instructions that start to load a cache line, to read it or to write to it.
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_ET0 as TO_WRITE, _MM_HINT_T0 as TO_READ};
#[cfg(not(target_arch = "x86_64"))]
const TO_READ: i32 = 0;
#[cfg(not(target_arch = "x86_64"))]
const TO_WRITE: i32 = 1;

/// Starts to load the cache line at `address`, by `HINT`.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code))]
fn fetch<const HINT: i32>(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither reads nor changes anything, and faults at no address. A processor
    // that does not have the instruction does nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<HINT>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Starts to load the cache line of `value`, without waiting: it will soon be needed.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    fetch::<TO_READ>(std::ptr::from_ref(value).cast());
}

/// Starts to take the cache line of `value` from the cores that have it, without waiting: this core
/// will soon write to it.
#[inline(always)]
pub fn prefetch_to_write<T: ?Sized>(value: &T) {
    fetch::<TO_WRITE>(std::ptr::from_ref(value).cast());
}

/// [`prefetch`] for all cache lines of `value`.
#[inline(always)]
pub fn prefetch_all<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<i8>();
    for offset in (0..size_of_val(value)).step_by(LINE) {
        fetch::<TO_READ>(start.wrapping_add(offset));
    }
}

/// A huge page of x86-64, in bytes; a multiple of every other architecture's page.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;

/// Asks the kernel for huge pages for all that `table` has room for: where entries are used that
/// are far from each other, finding their pages costs more than fetching them. What has been
/// written keeps its pages, so ask before. A hint: without huge pages, or for less than one, it
/// does nothing.
#[cfg_attr(target_os = "linux", expect(unsafe_code))]
pub fn ask_for_huge_pages<T>(table: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let start = table.as_mut_ptr().addr();
        let end = (start + table.capacity() * size_of::<T>()) / HUGE * HUGE;
        let skipped = start.next_multiple_of(HUGE) - start;
        let len = end.saturating_sub(start + skipped);
        if len == 0 {
            return;
        }
        let pages = table.as_mut_ptr().cast::<u8>().wrapping_add(skipped);
        // SAFETY: all these pages are inside the memory that the table owns, and the advice changes
        // neither what is in them nor whether it may be accessed.
        let asked = unsafe { madvise(pages.cast(), len, Advice::LinuxHugepage) };
        // A kernel without huge pages says so.
        let _: Result<(), rustix::io::Errno> = asked;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = table;
}

/// Gives memory that was freed back to the kernel, after something large was dropped in many small
/// pieces: the C library keeps those for later allocations. Other C libraries than glibc do
/// without. The time is that of a visit to each free piece. Source: malloc_trim(3).
#[cfg_attr(all(target_os = "linux", target_env = "gnu"), expect(unsafe_code))]
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time, from any thread, and changes nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_trimmed_heap_has_no_memory_of_what_was_dropped() {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        // The last of them keeps the heap's end, so that nothing is trimmed by itself.
        let mut pieces: Vec<_> = (0..400_000_u64).map(|number| Box::new([number; 12])).collect();
        let last = pieces.pop();
        drop(pieces);
        let before = resident();
        trim_heap();
        let freed = before.saturating_sub(resident());
        assert!(freed > 20 << 20, "{freed} bytes went back");
        drop(last);
    }

    #[test]
    fn huge_pages_keep_the_contents_of_a_table() {
        for room in [0, 1, 1000, 1 << 20] {
            let mut table: Vec<u64> = Vec::with_capacity(room);
            table.extend((0..room as u64).take(700));
            ask_for_huge_pages(&mut table);
            table.extend((700..).take(room.saturating_sub(700)));
            assert!(table.iter().copied().eq(0..room as u64));
        }
    }

    #[test]
    fn prefetching_changes_nothing() {
        let values = [1_u64, 2, 3];
        prefetch(&values[1]);
        prefetch(&values[3..]);
        prefetch("");
        prefetch_all(&values);
        prefetch_all(&values[3..]);
        assert_eq!(values, [1, 2, 3]);
    }
}

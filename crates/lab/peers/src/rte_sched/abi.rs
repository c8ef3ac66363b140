//! The binary interface of `librte_sched.so.23`: its structures and functions, safely wrapped.
//!
//! The library names carry the number of the binary interface, 23, which DPDK keeps for all
//! releases 22.11.x; other numbers are not loaded. The structures are those of `rte_sched.h` and
//! `rte_mbuf_core.h`, and the tests compare their layout with that of a C compiler.
#![allow(unsafe_code)]

use super::Error;
use libloading::Library as Loaded;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// `RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE`; the last one is best effort.
const CLASSES: usize = 13;
const BEST_EFFORT: u32 = CLASSES as u32 - 1;
/// `RTE_SCHED_BE_QUEUES_PER_PIPE`.
const BEST_EFFORT_QUEUES: usize = 4;
/// Megabytes for DPDK itself. Ports have memory of their own.
const MEMORY: &str = "64";
/// What a heap takes for itself.
const HEAP_OVERHEAD: usize = 64 << 10;
/// A huge page, in bytes.
const HUGE: usize = 2 << 20;
/// The burst of a token bucket, in bytes: enough for any number of consecutive packets.
const BURST: u64 = 1 << 20;
/// The period of a class's credits, in milliseconds.
const PERIOD: u64 = 10;
/// The longest frame.
const MTU: u32 = 1522;
/// `RTE_COLOR_GREEN`.
const GREEN: c_int = 0;
/// The reference count of each packet: far more than is dropped before it is set again.
const HOLDERS: u16 = 1 << 15;

#[repr(C)]
struct PortParams {
    name: *const c_char,
    socket: c_int,
    rate: u64,
    mtu: u32,
    frame_overhead: u32,
    n_subports_per_port: u32,
    subport_profiles: *mut SubportProfile,
    n_subport_profiles: u32,
    n_max_subport_profiles: u32,
    n_pipes_per_subport: u32,
}

#[repr(C)]
struct SubportProfile {
    tb_rate: u64,
    tb_size: u64,
    tc_rate: [u64; CLASSES],
    tc_period: u64,
}

#[repr(C)]
struct SubportParams {
    n_pipes_per_subport_enabled: u32,
    qsize: [u16; CLASSES],
    pipe_profiles: *mut PipeProfile,
    n_pipe_profiles: u32,
    n_max_pipe_profiles: u32,
    cman_params: *mut c_void,
}

#[repr(C)]
struct PipeProfile {
    tb_rate: u64,
    tb_size: u64,
    tc_rate: [u64; CLASSES],
    tc_period: u64,
    tc_ov_weight: u8,
    wrr_weights: [u8; BEST_EFFORT_QUEUES],
}

/// The fields of `struct rte_mbuf` that a scheduler reads, at their offsets.
#[repr(C, align(64))]
struct Mbuf {
    _buffer: [u64; 2],
    _data_off: u16,
    refcnt: u16,
    nb_segs: u16,
    _port: u16,
    _flags: [u32; 3],
    pkt_len: u32,
    data_len: u16,
    _vlan_tci: u16,
    _hash: [u32; 3],
    _pool: usize,
    _next: usize,
    _rest: [u64; 7],
}

/// An opaque `struct rte_sched_port`.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

type Init = unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int;
type PortConfig = unsafe extern "C" fn(*mut PortParams) -> *mut Opaque;
type PortFree = unsafe extern "C" fn(*mut Opaque);
type SubportConfig = unsafe extern "C" fn(*mut Opaque, u32, *mut SubportParams, u32) -> c_int;
type PipeConfig = unsafe extern "C" fn(*mut Opaque, u32, u32, i32) -> c_int;
type Footprint = unsafe extern "C" fn(*mut PortParams, *mut *mut SubportParams) -> u32;
type HeapName = unsafe extern "C" fn(*const c_char) -> c_int;
type HeapAdd =
    unsafe extern "C" fn(*const c_char, *mut c_void, usize, *mut u64, u32, usize) -> c_int;
type HeapRemove = unsafe extern "C" fn(*const c_char, *mut c_void, usize) -> c_int;
type PacketWrite = unsafe extern "C" fn(*mut Opaque, *mut Mbuf, u32, u32, u32, u32, c_int);
type Move = unsafe extern "C" fn(*mut Opaque, *mut *mut Mbuf, u32) -> c_int;

/// The functions of a started DPDK. It stays loaded, because it has threads.
pub(super) struct Library {
    heap_create: HeapName,
    heap_destroy: HeapName,
    heap_socket: HeapName,
    heap_add: HeapAdd,
    heap_remove: HeapRemove,
    footprint: Footprint,
    port_config: PortConfig,
    port_free: PortFree,
    subport_config: SubportConfig,
    pipe_config: PipeConfig,
    packet_write: PacketWrite,
    enqueue: Move,
    dequeue: Move,
}

impl Library {
    /// Loads and starts it. Call it once per process.
    pub(super) fn start() -> Result<Self, Error> {
        let eal = open("librte_eal.so.23")?;
        let sched = open("librte_sched.so.23")?;
        // SAFETY: these are the functions' types in `rte_eal.h` and `rte_sched.h`, and the
        // libraries are never unloaded.
        let (init, library) = unsafe {
            let init: Init = function(&eal, "rte_eal_init")?;
            let library = Self {
                heap_create: function(&eal, "rte_malloc_heap_create")?,
                heap_destroy: function(&eal, "rte_malloc_heap_destroy")?,
                heap_socket: function(&eal, "rte_malloc_heap_get_socket")?,
                heap_add: function(&eal, "rte_malloc_heap_memory_add")?,
                heap_remove: function(&eal, "rte_malloc_heap_memory_remove")?,
                footprint: function(&sched, "rte_sched_port_get_memory_footprint")?,
                port_config: function(&sched, "rte_sched_port_config")?,
                port_free: function(&sched, "rte_sched_port_free")?,
                subport_config: function(&sched, "rte_sched_subport_config")?,
                pipe_config: function(&sched, "rte_sched_pipe_config")?,
                packet_write: function(&sched, "rte_sched_port_pkt_write")?,
                enqueue: function(&sched, "rte_sched_port_enqueue")?,
                dequeue: function(&sched, "rte_sched_port_dequeue")?,
            };
            (init, library)
        };
        // `rte_eal_init` may keep the strings, and reorders the pointers.
        let words: Vec<CString> =
            arguments().into_iter().filter_map(|word| CString::new(word).ok()).collect();
        let mut addresses: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        addresses.push(ptr::null_mut());
        let addresses = Box::leak(addresses.into_boxed_slice());
        // SAFETY: the list has as many strings as stated; the strings and the list are writable and
        // never freed; a `OnceLock` ensures that this happens once per process.
        let started = unsafe { init(addresses.len() as c_int - 1, addresses.as_mut_ptr()) };
        if started < 0 { Err(Error::Start(started)) } else { Ok(library) }
    }
}

/// The command line: no huge pages of its own, no devices, nothing shared with other processes, and
/// no change to this thread's CPU affinity.
fn arguments() -> Vec<String> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    let cores: Vec<String> = cores.map(|core| core.to_string()).collect();
    let cores = if cores.is_empty() { "0".to_owned() } else { cores.join(",") };
    let lcores = format!("--lcores=0@({cores})");
    let words = ["narrows", "--no-huge", "-m", MEMORY, "--no-pci", "--no-shconf", "--no-telemetry"];
    let words = words.into_iter().map(str::to_owned);
    words.chain(["--log-level=*:error".to_owned(), lcores]).collect()
}

fn open(name: &str) -> Result<ManuallyDrop<Loaded>, Error> {
    // SAFETY: the initializers of DPDK's libraries only register their contents.
    let loaded = unsafe { Loaded::new(name) };
    loaded.map(ManuallyDrop::new).map_err(|error| Error::Absent(error.to_string()))
}

/// The function of that name.
///
/// # Safety
/// `F` is its type, and `library` is never unloaded.
unsafe fn function<F: Copy>(library: &Loaded, name: &str) -> Result<F, Error> {
    // SAFETY: the caller guarantees it.
    let symbol = unsafe { library.get::<F>(name) };
    symbol.map(|symbol| *symbol).map_err(|error| Error::Absent(error.to_string()))
}

/// A heap of DPDK's for one port, in transparent huge pages where the kernel has them. DPDK keeps
/// what it manages of such memory, which its user provides, apart from its own.
struct Heap {
    library: &'static Library,
    name: CString,
    start: NonNull<c_void>,
    len: usize,
}

impl Heap {
    /// One of at least `room` bytes.
    fn new(library: &'static Library, room: usize) -> Result<Self, Error> {
        const REFUSED: Error = Error::Refused("a heap");
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("narrows-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).map_err(|_| REFUSED)?;
        let len = room.next_multiple_of(HUGE);
        let (rights, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, where the kernel has room for it.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), len + HUGE, rights, private) };
        let mapped = mapped.map_err(|_| REFUSED)?;
        let skipped = mapped.addr().next_multiple_of(HUGE) - mapped.addr();
        let behind = HUGE - skipped;
        // SAFETY: each part is of the mapping above, in whole pages, and nothing is in it yet. What
        // is left begins at a huge page.
        let start = unsafe {
            let start = mapped.byte_add(skipped);
            let cut = |from, len| if len == 0 { Ok(()) } else { munmap(from, len) };
            cut(mapped, skipped).and(cut(start.byte_add(len), behind)).map_err(|_| REFUSED)?;
            // A kernel without huge pages says so.
            let _: Result<(), rustix::io::Errno> = madvise(start, len, Advice::LinuxHugepage);
            start
        };
        let start = NonNull::new(start).ok_or(REFUSED)?;
        // SAFETY: the name is a string.
        if unsafe { (library.heap_create)(name.as_ptr()) } != 0 {
            return Err(REFUSED);
        }
        // SAFETY: the memory is mapped until the heap is dropped, in whole huge pages, and nobody
        // else uses it. Without devices it needs no other addresses.
        let added = unsafe {
            let (pages, none) = ((len / HUGE) as u32, ptr::null_mut());
            (library.heap_add)(name.as_ptr(), start.as_ptr(), len, none, pages, HUGE)
        };
        if added != 0 {
            return Err(REFUSED);
        }
        Ok(Self { library, name, start, len })
    }

    /// Its number, where DPDK expects that of a processor's socket.
    fn socket(&self) -> c_int {
        // SAFETY: the name is a string.
        unsafe { (self.library.heap_socket)(self.name.as_ptr()) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let (name, start) = (self.name.as_ptr(), self.start.as_ptr());
        // SAFETY: the memory is the heap's. DPDK gives it back only if nothing in it is in use,
        // and it is not unmapped otherwise.
        unsafe {
            if (self.library.heap_remove)(name, start, self.len) == 0 {
                (self.library.heap_destroy)(name);
                let _: Result<(), rustix::io::Errno> = munmap(start, self.len);
            }
        }
    }
}

/// A port with one subport. Freeing it lowers the reference count of the packets in it.
pub(super) struct Port {
    library: &'static Library,
    port: NonNull<Opaque>,
    pipes: u32,
    /// Where it is. Dropped after the port has been freed.
    _heap: Heap,
}

impl Port {
    /// A port of `line` bytes per second, of which the pipes have `rate`, together and each.
    pub(super) fn new(
        library: &'static Library,
        pipes: u32,
        line: u64,
        rate: u64,
        queue: u16,
    ) -> Result<Self, Error> {
        let mut profile = SubportProfile {
            tb_rate: rate,
            tb_size: BURST,
            tc_rate: [rate; CLASSES],
            tc_period: PERIOD,
        };
        // A class without queues has no rate either.
        let (mut tc_rate, mut qsize) = ([0; CLASSES], [0; CLASSES]);
        tc_rate[BEST_EFFORT as usize] = rate;
        qsize[BEST_EFFORT as usize] = queue;
        let mut pipe = PipeProfile {
            tb_rate: rate,
            tb_size: BURST,
            tc_rate,
            tc_period: PERIOD,
            tc_ov_weight: 1,
            wrr_weights: [1; BEST_EFFORT_QUEUES],
        };
        let mut subport = SubportParams {
            n_pipes_per_subport_enabled: pipes,
            qsize,
            pipe_profiles: &raw mut pipe,
            n_pipe_profiles: 1,
            n_max_pipe_profiles: 1,
            cman_params: ptr::null_mut(),
        };
        let mut params = PortParams {
            name: c"narrows".as_ptr(),
            socket: 0,
            rate: line,
            mtu: MTU,
            frame_overhead: 0,
            n_subports_per_port: 1,
            subport_profiles: &raw mut profile,
            n_subport_profiles: 1,
            n_max_subport_profiles: 1,
            n_pipes_per_subport: pipes,
        };
        let mut subports = [&raw mut subport];
        // SAFETY: `params`, its one subport and what they point to live.
        let room = unsafe { (library.footprint)(&raw mut params, subports.as_mut_ptr()) };
        if room == 0 {
            return Err(Error::Refused("so many pipes"));
        }
        let heap = Heap::new(library, room as usize + HEAP_OVERHEAD)?;
        params.socket = heap.socket();
        // SAFETY: `params` and what it points to live and are copied.
        let port = unsafe { (library.port_config)(&raw mut params) };
        let port = NonNull::new(port).ok_or(Error::Refused("a port"))?;
        let port = Self { library, port, pipes, _heap: heap };
        // SAFETY: the port was made above; `subport` and what it points to live and are copied.
        let done = unsafe { (library.subport_config)(port.port.as_ptr(), 0, &raw mut subport, 0) };
        if done != 0 {
            return Err(Error::Refused("a subport"));
        }
        for pipe in 0..pipes {
            // SAFETY: the port was made above, with this many pipes and one profile.
            let done = unsafe { (library.pipe_config)(port.port.as_ptr(), 0, pipe, 0) };
            if done != 0 {
                return Err(Error::Refused("a pipe"));
            }
        }
        Ok(port)
    }

    /// Writes the pipe into the packet.
    #[inline]
    pub(super) fn classify(&mut self, packet: Handle, pipe: u32) {
        assert!(pipe < self.pipes, "no pipe {pipe}");
        let (port, write) = (self.port.as_ptr(), self.library.packet_write);
        // SAFETY: handles are of packets that live as long as the port; the pipe exists.
        unsafe { write(port, packet.0.as_ptr(), 0, pipe, BEST_EFFORT, 0, GREEN) }
    }

    /// Enqueues `packets`, which have been classified. Returns how many the library accepted.
    #[inline]
    pub(super) fn enqueue(&mut self, packets: &mut [Handle]) -> usize {
        let list = packets.as_mut_ptr().cast();
        // SAFETY: the list has as many packets as stated, a handle is the address of a packet, and
        // each has been classified for this port.
        let taken =
            unsafe { (self.library.enqueue)(self.port.as_ptr(), list, packets.len() as u32) };
        taken.max(0) as usize
    }

    /// Replaces `packets` with up to `most` that leave, limited by its capacity.
    #[inline]
    pub(super) fn dequeue(&mut self, packets: &mut Vec<Handle>, most: usize) {
        packets.clear();
        let most = most.min(packets.capacity());
        let list = packets.as_mut_ptr().cast();
        // SAFETY: there is room for `most` addresses, and the library writes addresses of packets
        // that were enqueued, which are handles.
        unsafe {
            let left = (self.library.dequeue)(self.port.as_ptr(), list, most as u32);
            packets.set_len(left.max(0) as usize);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the library made the port, and nothing uses it after this. The packets in it are
        // still alive: an owner of a port drops it before them.
        unsafe { (self.library.port_free)(self.port.as_ptr()) }
    }
}

/// A packet, by the address of its `rte_mbuf`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Handle(NonNull<Mbuf>);

/// Contiguous packets.
pub(super) struct Mbufs {
    first: NonNull<Mbuf>,
    number: u32,
}

impl Mbufs {
    pub(super) fn new(number: u32) -> Self {
        let mut mbufs = Vec::with_capacity(number as usize);
        narrows_cpu::ask_for_huge_pages(&mut mbufs);
        mbufs.extend((0..number).map(|_| Mbuf::unused()));
        let first = NonNull::from(Box::leak(mbufs.into_boxed_slice())).cast();
        Self { first, number }
    }

    /// Packet `number` after reception with `len` bytes: what a driver writes.
    #[inline]
    pub(super) fn arrive(&mut self, number: u32, len: u16) -> Handle {
        assert!(number < self.number, "no packet {number}");
        // SAFETY: there are more packets than this number, and no other reference to one exists.
        let mbuf = unsafe {
            let mbuf = self.first.add(number as usize);
            (*mbuf.as_ptr()).pkt_len = u32::from(len);
            (*mbuf.as_ptr()).data_len = len;
            mbuf
        };
        Handle(mbuf)
    }

    /// The number of one of these packets.
    #[inline]
    pub(super) fn number(&self, packet: Handle) -> u32 {
        let bytes = packet.0.addr().get() - self.first.addr().get();
        (bytes / size_of::<Mbuf>()) as u32
    }

    /// Whether the library has dropped it, once for each drop.
    #[inline]
    pub(super) fn was_dropped(&mut self, packet: Handle) -> bool {
        // SAFETY: handles are of packets that live as long as this, and no other reference to one
        // exists.
        let refcnt = unsafe { &mut (*packet.0.as_ptr()).refcnt };
        std::mem::replace(refcnt, HOLDERS) != HOLDERS
    }
}

impl Drop for Mbufs {
    fn drop(&mut self) {
        let mbufs = ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.number as usize);
        // SAFETY: this is the box that was leaked, and its port is gone.
        drop(unsafe { Box::from_raw(mbufs) });
    }
}

impl Mbuf {
    /// One segment, no pool, and a reference count that the library cannot exhaust.
    fn unused() -> Self {
        Self {
            _buffer: [0; 2],
            _data_off: 0,
            refcnt: HOLDERS,
            nb_segs: 1,
            _port: 0,
            _flags: [0; 3],
            pkt_len: 0,
            data_len: 0,
            _vlan_tci: 0,
            _hash: [0; 3],
            _pool: 0,
            _next: 0,
            _rest: [0; 7],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The layout that `gcc` makes of the headers of 22.11.11 on amd64.
    #[test]
    fn structures_are_laid_out_as_in_c() {
        assert_eq!(size_of::<PortParams>(), 64);
        assert_eq!(offset_of!(PortParams, rate), 16);
        assert_eq!(offset_of!(PortParams, n_subports_per_port), 32);
        assert_eq!(offset_of!(PortParams, subport_profiles), 40);
        assert_eq!(offset_of!(PortParams, n_pipes_per_subport), 56);
        assert_eq!(size_of::<SubportProfile>(), 128);
        assert_eq!(offset_of!(SubportProfile, tc_period), 120);
        assert_eq!(size_of::<SubportParams>(), 56);
        assert_eq!(offset_of!(SubportParams, qsize), 4);
        assert_eq!(offset_of!(SubportParams, pipe_profiles), 32);
        assert_eq!(offset_of!(SubportParams, cman_params), 48);
        assert_eq!(size_of::<PipeProfile>(), 136);
        assert_eq!(offset_of!(PipeProfile, tc_ov_weight), 128);
        assert_eq!(offset_of!(PipeProfile, wrr_weights), 129);
        assert_eq!(size_of::<Mbuf>(), 128);
        assert_eq!(offset_of!(Mbuf, refcnt), 18);
        assert_eq!(offset_of!(Mbuf, nb_segs), 20);
        assert_eq!(offset_of!(Mbuf, pkt_len), 36);
        assert_eq!(offset_of!(Mbuf, data_len), 40);
        assert_eq!(offset_of!(Mbuf, _hash), 44);
        assert_eq!(offset_of!(Mbuf, _pool), 56);
        assert_eq!(offset_of!(Mbuf, _next), 64);
    }
}

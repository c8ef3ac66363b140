//! The stack that chains of calls use, from the objects of BPF programs.
//!
//! The verifier adds up the frames of each chain of calls (`check_max_stack_depth` in
//! kernel/bpf/verifier.c). The kernel at hand may allow what an older one refuses: since Linux 6.12
//! some functions have a stack of their own, and are not counted. So chains are counted here, too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a chain of calls may use: `MAX_BPF_STACK`, in bytes.
const MOST: u32 = 512;
/// What the callers of a function that makes a tail call may use, in bytes.
const MOST_ABOVE_TAIL_CALL: u32 = 256;
/// The most frames in a chain: `MAX_CALL_FRAMES`.
const FRAMES: usize = 8;
/// Frames are rounded up to this, in bytes.
const FRAME: u32 = 32;

const INSTRUCTION: usize = 8;
/// `r10`, the frame pointer.
const FRAME_POINTER: u8 = 10;
/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// `BPF_LD | BPF_IMM | BPF_DW`, of two instructions.
const LOAD_IMMEDIATE: u8 = 0x18;
/// The `src` of a call of a function, and of a load of a function's address.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNC: u8 = 4;
/// The number of the helper `bpf_tail_call`.
const TAIL_CALL: i32 = 12;

/// A function of an object.
struct Function {
    name: String,
    /// What it accesses below its frame pointer, in bytes.
    stack: u32,
    /// Those that it calls, or whose address it passes on as a callback.
    calls: BTreeSet<usize>,
    makes_tail_call: bool,
    /// Whether the kernel can enter here.
    is_program: bool,
}

impl Function {
    /// Its part of a chain.
    fn frame(&self) -> u32 {
        self.stack.max(1).next_multiple_of(FRAME)
    }
}

/// The parts of an ELF file that are needed.
struct Object<'a> {
    sections: Vec<Section<'a>>,
    symbols: Vec<Symbol<'a>>,
}

struct Section<'a> {
    name: &'a str,
    kind: u32,
    is_code: bool,
    bytes: &'a [u8],
    /// For relocations: the section to which they apply.
    info: usize,
}

struct Symbol<'a> {
    name: &'a str,
    is_function: bool,
    section: usize,
    value: usize,
    size: usize,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> usize {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(wide) as usize
}

fn text(bytes: &[u8], at: usize) -> &str {
    let end = bytes[at..].iter().position(|byte| *byte == 0).unwrap();
    std::str::from_utf8(&bytes[at..at + end]).unwrap()
}

impl<'a> Object<'a> {
    /// Reads a relocatable ELF file of 64 bits, little endian (elf(5)).
    fn of(bytes: &'a [u8]) -> Self {
        const SYMTAB: u32 = 2;
        const NOBITS: u32 = 8;
        const EXECUTABLE: usize = 4;
        assert_eq!(&bytes[..6], b"\x7fELF\x02\x01");
        let (table, size) = (number::<8>(bytes, 0x28), number::<2>(bytes, 0x3a));
        let (count, names) = (number::<2>(bytes, 0x3c), number::<2>(bytes, 0x3e));
        let header = |at: usize| &bytes[table + at * size..][..size];
        let content = |header: &[u8]| {
            let length =
                if number::<4>(header, 4) as u32 == NOBITS { 0 } else { number::<8>(header, 0x20) };
            &bytes[number::<8>(header, 0x18)..][..length]
        };
        let names = content(header(names));
        let sections = (0..count).map(header).map(|header| Section {
            name: text(names, number::<4>(header, 0)),
            kind: number::<4>(header, 4) as u32,
            is_code: number::<8>(header, 8) & EXECUTABLE != 0,
            bytes: content(header),
            info: number::<4>(header, 0x2c),
        });
        let sections: Vec<Section<'_>> = sections.collect();
        let symbols = sections.iter().position(|section| section.kind == SYMTAB).unwrap();
        let strings = sections[number::<4>(header(symbols), 0x28)].bytes;
        let symbols = sections[symbols].bytes.chunks_exact(24).map(|symbol| Symbol {
            name: text(strings, number::<4>(symbol, 0)),
            is_function: symbol[4] & 0xf == 2,
            section: number::<2>(symbol, 6),
            value: number::<8>(symbol, 8),
            size: number::<8>(symbol, 16),
        });
        let symbols = symbols.collect();
        Self { sections, symbols }
    }

    /// The symbols to which the instructions of `section` refer, by the instruction's place in
    /// bytes.
    fn relocations(&self, section: usize) -> BTreeMap<usize, &Symbol<'a>> {
        const REL: u32 = 9;
        let tables = self.sections.iter().filter(|it| it.kind == REL && it.info == section);
        let entries = tables.flat_map(|table| table.bytes.chunks_exact(16));
        entries
            .map(|entry| (number::<8>(entry, 0), &self.symbols[number::<4>(entry, 12)]))
            .collect()
    }

    fn functions(&self) -> Vec<Function> {
        let symbols: Vec<&Symbol<'_>> =
            self.symbols.iter().filter(|symbol| symbol.is_function).collect();
        let at = |section: usize, place: usize| {
            let found = symbols
                .iter()
                .position(|symbol| symbol.section == section && symbol.value == place);
            found.unwrap_or_else(|| panic!("no function at {place:#x} of section {section}"))
        };
        let function = |symbol: &&Symbol<'_>| {
            let section = &self.sections[symbol.section];
            let relocations = self.relocations(symbol.section);
            let code = &section.bytes[symbol.value..symbol.value + symbol.size];
            let mut calls = BTreeSet::new();
            let mut makes_tail_call = false;
            let mut frame = Frame::default();
            let mut place = 0;
            while place < code.len() {
                let instruction = Instruction::of(&code[place..]);
                frame.follow(instruction);
                let from = symbol.value + place;
                let relocation = relocations.get(&from);
                let Instruction { code: operation, source, immediate, .. } = instruction;
                match (operation, source) {
                    // A function of the kernel.
                    (CALL, PSEUDO_CALL) if relocation.is_some_and(|to| to.section == 0) => {}
                    (CALL, PSEUDO_CALL) => {
                        // In instructions, from the next one or from the symbol's section on.
                        let (section, from) =
                            relocation.map_or((symbol.section, from), |to| (to.section, to.value));
                        let to = from as i64 + INSTRUCTION as i64 * (i64::from(immediate) + 1);
                        calls.insert(at(section, to as usize));
                    }
                    (CALL, _) => makes_tail_call |= immediate == TAIL_CALL,
                    (LOAD_IMMEDIATE, _) => {
                        // In bytes.
                        let to = relocation.filter(|to| self.sections[to.section].is_code);
                        assert!(to.is_some() || source != PSEUDO_FUNC);
                        calls.extend(to.map(|to| at(to.section, to.value + immediate as usize)));
                        place += INSTRUCTION;
                    }
                    _ => {}
                }
                place += INSTRUCTION;
            }
            let is_program = section.name != ".text";
            Function {
                name: symbol.name.to_owned(),
                stack: frame.lowest.unsigned_abs(),
                calls,
                makes_tail_call,
                is_program,
            }
        };
        symbols.iter().map(function).collect()
    }
}

#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn of(bytes: &[u8]) -> Self {
        Self {
            code: bytes[0],
            destination: bytes[1] & 0xf,
            source: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            immediate: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }
}

/// Which registers point into the frame, in the order of the code: the compiler derives an address
/// from the frame pointer just before it is used.
#[derive(Default)]
struct Frame {
    /// By register, the distance from the frame pointer.
    pointers: BTreeMap<u8, i32>,
    lowest: i32,
}

impl Frame {
    fn follow(&mut self, instruction: Instruction) {
        const LOAD: u8 = 1;
        const STORE: u8 = 2;
        const STORE_REGISTER: u8 = 3;
        const MOVE: u8 = 0xbf;
        const ADD: u8 = 0x07;
        let Instruction { code, destination, source, offset, immediate } = instruction;
        let pointer = |register: u8| match register {
            FRAME_POINTER => Some(0),
            _ => self.pointers.get(&register).copied(),
        };
        let class = code & 7;
        let address = match class {
            LOAD => pointer(source),
            STORE | STORE_REGISTER => pointer(destination),
            _ => None,
        };
        let accessed = address.map(|address| address + i32::from(offset));
        let result = match code {
            MOVE if offset == 0 => pointer(source),
            ADD => pointer(destination).map(|address| address + immediate),
            _ => None,
        };
        self.lowest = self.lowest.min(accessed.unwrap_or(0)).min(result.unwrap_or(0));
        match (class, result) {
            (STORE | STORE_REGISTER, _) => {}
            // Jumps write no register, and calls clobber these.
            (5 | 6, _) if code == CALL => self.pointers.retain(|register, _| *register > 5),
            (5 | 6, _) => {}
            (_, Some(address)) => drop(self.pointers.insert(destination, address)),
            (_, None) => drop(self.pointers.remove(&destination)),
        }
    }
}

/// The deepest chain of calls from the function `at` on, below `above` of its callers.
fn deepest(functions: &[Function], at: usize, above: &[usize]) -> Vec<usize> {
    let chain = [above, &[at]].concat();
    let names = || name(functions, &chain);
    assert!(!above.contains(&at), "a recursion: {}", names());
    assert!(chain.len() <= FRAMES, "{} frames, and {FRAMES} are allowed: {}", chain.len(), names());
    let before = depth(functions, above);
    assert!(
        above.is_empty() || !functions[at].makes_tail_call || before < MOST_ABOVE_TAIL_CALL,
        "{before} bytes above a tail call, and less than {MOST_ABOVE_TAIL_CALL} are allowed: {}",
        names()
    );
    let below = functions[at].calls.iter().map(|call| deepest(functions, *call, &chain));
    below.max_by_key(|chain| depth(functions, chain)).unwrap_or(chain)
}

fn depth(functions: &[Function], chain: &[usize]) -> u32 {
    chain.iter().map(|at| functions[*at].frame()).sum()
}

fn name(functions: &[Function], chain: &[usize]) -> String {
    let part = |at: &usize| format!("{} ({})", functions[*at].name, functions[*at].frame());
    chain.iter().map(part).collect::<Vec<_>>().join(" -> ")
}

/// Checks all objects in `folder`, and that there is one for each of the programs in `sources`.
pub fn check(folder: &Path, sources: &Path) {
    let files = |folder: &Path, ending: &str| {
        let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter_map(|name| name.strip_suffix(ending).map(str::to_owned)).collect()
    };
    let objects: BTreeSet<String> = files(folder, ".bpf.o");
    assert_eq!(objects, files(sources, ".bpf.c"), "each program has an object");
    for object in objects {
        let bytes = std::fs::read(folder.join(format!("{object}.bpf.o"))).unwrap();
        let functions = Object::of(&bytes).functions();
        let programs = (0..functions.len()).filter(|at| functions[*at].is_program);
        let deepest = programs.map(|program| deepest(&functions, program, &[]));
        let deepest = deepest.max_by_key(|chain| depth(&functions, chain)).unwrap();
        let (depth, name) = (depth(&functions, &deepest), name(&functions, &deepest));
        println!("{object}: {depth} bytes of stack: {name}");
        assert!(depth <= MOST, "{object}: {depth} bytes of stack, and {MOST} are allowed: {name}");
    }
}

//! The processors of guests: what differs between them outside of the checks.

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64, the host's own.
    Amd64,
    /// ARM, 64 bits: the board `virt`, which exists only in qemu.
    Arm64,
}

use Architecture::{Amd64, Arm64};

impl Architecture {
    /// The processor that this program is compiled for.
    pub const OWN: Self = if cfg!(target_arch = "aarch64") { Arm64 } else { Amd64 };

    /// Its name in Debian.
    pub const fn debian(self) -> &'static str {
        match self {
            Amd64 => "amd64",
            Arm64 => "arm64",
        }
    }

    /// The folder of its libraries in Debian, which is also the prefix of its compiler's tools.
    pub const fn triple(self) -> &'static str {
        match self {
            Amd64 => "x86_64-linux-gnu",
            Arm64 => "aarch64-linux-gnu",
        }
    }

    /// The loader of its programs, without the folder for which every root has a link.
    pub const fn loader(self) -> &'static str {
        match self {
            Amd64 => "lib64/ld-linux-x86-64.so.2",
            Arm64 => "lib/ld-linux-aarch64.so.1",
        }
    }

    /// The emulator: its program and its Debian package.
    pub const fn emulator(self) -> (&'static str, &'static str) {
        match self {
            Amd64 => ("qemu-system-x86_64", "qemu-system-x86"),
            Arm64 => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }

    /// The oldest qemu that has what the guests need: an igb, a second serial port of the board.
    pub const fn oldest_emulator(self) -> u32 {
        match self {
            Amd64 => 8,
            Arm64 => 10,
        }
    }

    /// The board, in qemu's words.
    pub const fn board(self) -> &'static str {
        match self {
            Amd64 => "q35,usb=off,smm=off",
            Arm64 => "virt,gic-version=3",
        }
    }

    /// The processor that is emulated, in qemu's words.
    pub const fn emulated(self) -> &'static str {
        match self {
            Amd64 => "Nehalem",
            Arm64 => "cortex-a72",
        }
    }

    /// Its two serial ports: the console, and the one for messages to the host.
    pub const fn serial_ports(self) -> [&'static str; 2] {
        match self {
            Amd64 => ["ttyS0", "ttyS1"],
            Arm64 => ["ttyAMA0", "ttyAMA1"],
        }
    }
}

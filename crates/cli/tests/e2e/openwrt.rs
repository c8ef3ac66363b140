//! The package for OpenWrt, with stand-ins for what OpenWrt has and this machine has not: its init
//! script starts what the configuration says, and its Makefile installs what that needs.

use crate::setup::{NARROWS, own_path, port_in, show, turn_to_count};
use narrows_testbed::Testbed;
use narrows_testbed::narrows::Instance;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the package.
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/openwrt");
/// Its init script and its configuration.
const INIT: &str = include_str!("../../../../dist/openwrt/files/narrows.init");
const CONFIG: &str = include_str!("../../../../dist/openwrt/files/narrows.config");
/// Stand-ins for the functions of OpenWrt's `/lib/functions.sh` and `procd.sh` that the script
/// calls. UCI's words are read as a shell reads them. What procd is told goes to standard output.
const STAND_INS: &str = r#"
config() { section=$2; sections="$sections $1:$2"; }
option() { eval "value_${section}_$1=\$2"; }
config_load() { . "$CONFIG"; }
config_foreach() {
	for each in $sections; do [ "${each%%:*}" != "$2" ] || "$1" "${each#*:}"; done
}
config_get() { eval "$1=\${value_$2_$3:-\$4}"; }
config_get_bool() { config_get "$@"; }
procd_open_instance() { echo "instance $1"; }
procd_set_param() { echo "$@"; }
procd_close_instance() { :; }
logger() { echo "log $*"; }
"#;

/// A folder that stands for OpenWrt's root and for its build system.
struct OpenWrt(PathBuf);

impl OpenWrt {
    fn new() -> Self {
        let top = own_path("openwrt");
        fs::create_dir_all(&top).unwrap();
        Self(top)
    }

    /// What the script tells procd and the log with this configuration, a line each.
    fn start(&self, config: &str) -> Vec<String> {
        let path = |name: &str| self.0.join(name).to_str().unwrap().to_owned();
        fs::write(path("narrows"), config).unwrap();
        let init = INIT
            .replace("/usr/bin/narrows", NARROWS)
            .replace("/etc/config/narrows", &path("narrows"))
            .replace("/var/run/narrows-policies", &path("policies"));
        let script = format!("{STAND_INS}\n{init}\nstart_service\n");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// `make` in the package's folder, with as much of OpenWrt's rules as it uses; what it says.
    fn make(&self, target: &str) -> String {
        fs::create_dir_all(self.0.join("build/bin")).unwrap();
        fs::write(self.0.join("build/bin/narrows"), "the program").unwrap();
        let rules = "INSTALL_DIR:=install -d\nINSTALL_BIN:=install -m 755\n\
                     INSTALL_CONF:=install -m 600\nINCLUDE_DIR:=$(TOPDIR)\n";
        fs::write(self.0.join("rules.mk"), rules).unwrap();
        let package = "PKG_BUILD_DIR:=$(TOPDIR)/build\n\
                       define BuildPackage\ninstall:\n\t$(call Package/$(1)/install,$(TOPDIR)/root)\n\
                       version:\n\t@echo $(PKG_VERSION)\nendef\n";
        fs::write(self.0.join("package.mk"), package).unwrap();
        let top = format!("TOPDIR={}", self.0.display());
        let make = Command::new("make").args(["-C", PACKAGE, "-s", &top, target]).output().unwrap();
        assert!(make.status.success(), "{make:?}");
        String::from_utf8(make.stdout).unwrap()
    }
}

impl Drop for OpenWrt {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The configuration of the package, enabled and between the ports of a bed.
fn enabled() -> String {
    CONFIG
        .replace("enabled '0'", "enabled '1'")
        .replace("interface 'eth1'", "interface 'port-a'")
        .replace("home 'eth0'", "home 'port-b'")
}

/// The words after `name` in the line of `told` that begins with it.
fn told<'a>(told: &'a [String], name: &str) -> Vec<&'a str> {
    let line = told.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {told:?}")).split(' ').collect()
}

#[test]
fn a_queue_that_is_enabled_is_an_instance_with_its_limits() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let openwrt = OpenWrt::new();
    let procd = openwrt.start(&enabled());
    assert_eq!(told(&procd, "instance"), ["home"]);
    let command = told(&procd, "command");
    assert_eq!(command[0], NARROWS);
    let _instance = Instance::start_command(&bed, Path::new(NARROWS), &command[1..]).unwrap();
    let show = show(&bed);
    for (port, rate) in [("port-a", 10_000_000), ("port-b", 85_000_000)] {
        let port = port_in(&show, port);
        assert_eq!((&port["qdisc"], &port["rate_set_bps"]), (&"cake".into(), &rate.into()));
    }
    let policy = told(&procd, "file")[0];
    assert!(fs::read_to_string(policy).unwrap().contains("overhead 44"));
}

#[test]
fn a_router_is_started_as_one() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let openwrt = OpenWrt::new();
    let procd = openwrt.start(&enabled().replace("forwarding 'ports'", "forwarding 'router'"));
    let command = told(&procd, "command");
    assert_eq!(command[2..4], ["--router", "port-a,port-b"]);
    let _instance = Instance::start_command(&bed, Path::new(NARROWS), &command[1..]).unwrap();
    assert_eq!(show(&bed)["ports"].as_array().unwrap().len(), 2);
}

#[test]
fn a_queue_is_not_started_without_being_enabled_nor_with_what_cannot_be_imported() {
    let openwrt = OpenWrt::new();
    assert!(openwrt.start(CONFIG).is_empty(), "as it is installed");
    for (from, to, reason) in [
        ("download '85000'", "download 'much'", "much"),
        ("home 'port-b'", "home ''", "option home"),
        ("forwarding 'ports'", "forwarding 'bridge'", "not bridge"),
    ] {
        let said = openwrt.start(&enabled().replace(from, to));
        assert!(said.iter().all(|line| !line.starts_with("instance")), "{said:?}");
        let words = said.join(" ");
        assert!(words.starts_with("log ") && words.contains(reason), "{words}");
    }
}

#[test]
fn what_is_left_out_is_in_the_log_and_the_rest_is_in_force() {
    let unknown = "qdisc_advanced '1'\n\toption qdisc_really_really_advanced '1'\n\toption \
                   iqdisc_opts 'no-such-word'\n\toption qdisc 'cake'";
    let openwrt = OpenWrt::new();
    let said = openwrt.start(&enabled().replace("qdisc 'cake'", unknown));
    assert!(said[0].starts_with("log ") && said.join("\n").contains("no-such-word"), "{said:?}");
    assert_eq!(told(&said, "instance"), ["home"]);
}

#[test]
fn the_package_installs_the_program_its_init_script_and_its_configuration() {
    let openwrt = OpenWrt::new();
    openwrt.make("install");
    let installed = |path: &str| fs::read_to_string(openwrt.0.join("root").join(path)).unwrap();
    assert_eq!(installed("usr/bin/narrows"), "the program");
    assert_eq!(installed("etc/init.d/narrows"), INIT);
    assert_eq!(installed("etc/config/narrows"), CONFIG);
    assert!(openwrt.make("version").contains(env!("CARGO_PKG_VERSION")));
}
